// Select compiled and executed: every type, mode, shape and layout.
#include "check.hpp"

#include <algorithm>

namespace client {

namespace {

size_t size_of(data_type type) {
    switch (type) {
        case data_type::f16:
        case data_type::bf16: return 2;
        case data_type::f32:
        case data_type::s32: return 4;
        case data_type::s64: return 8;
        default: return 1;
    }
}

size_t count(const dims &shape) {
    size_t n = 1;
    for (auto dim : shape) n *= static_cast<size_t>(dim);
    return n;
}

// Where an element of `shape` lies in a dense tensor of `from` that broadcasts onto it.
size_t source(const dims &from, const dims &shape, size_t flat) {
    size_t at = 0, step = 1;
    for (size_t i = 0; i < shape.size(); i++) {
        const auto dim = static_cast<size_t>(shape[shape.size() - 1 - i]);
        const size_t index = flat % dim;
        flat /= dim;
        if (i >= from.size()) continue;
        const auto own = static_cast<size_t>(from[from.size() - 1 - i]);
        if (own != 1) at += index * step;
        step *= own;
    }
    return at;
}

// Bytes that no two elements share, from a fixed seed.
std::vector<uint8_t> fill(size_t bytes, uint32_t seed) {
    std::vector<uint8_t> out(bytes);
    for (auto &byte : out) {
        seed = seed * 1664525u + 1013904223u;
        byte = static_cast<uint8_t>(seed >> 24);
    }
    return out;
}

// Floats of the type that are neither NaN, infinite nor denormal.
void tame(std::vector<uint8_t> &data, data_type type) {
    for (size_t i = 0; i < data.size(); i += size_of(type)) {
        if (type == data_type::f32) data[i + 3] = 0x40;
        if (type == data_type::f16 || type == data_type::bf16) data[i + 1] = 0x40;
    }
}

struct Shapes {
    dims cond, then, else_, dst;
};

// Compiles a select for dense shapes with the result left to infer, runs it, and compares it with a loop.
std::string run(data_type type, const std::string &mode, const Shapes &s, bool any_bits) {
    const size_t bytes = size_of(type);
    const logical_tensor cond(0, data_type::boolean, s.cond, layout::strided), then(1, type, s.then, layout::strided),
            else_(2, type, s.else_, layout::strided), dst(3, type, layout::strided);
    const auto part = select_partition(cond, then, else_, dst, mode);
    if (!part.is_supported()) return "not supported";
    const dnnl::engine engine = cpu();
    dnnl::stream stream(engine);
    const auto compiled = part.compile({cond, then, else_}, {dst}, engine);
    const auto result = compiled.query_logical_tensor(3);
    if (result.get_dims() != s.dst) return "dims " + text(result.get_dims());
    auto c = fill(count(s.cond), 1), t = fill(count(s.then) * bytes, 2), e = fill(count(s.else_) * bytes, 3);
    for (auto &byte : c) byte &= 1;
    if (!any_bits) {
        tame(t, type);
        tame(e, type);
    }
    std::vector<uint8_t> got(count(s.dst) * bytes + 1, 0xab);
    compiled.execute(stream,
            {tensor(cond, engine, c.data()), tensor(then, engine, t.data()), tensor(else_, engine, e.data())},
            {tensor(result, engine, got.data())});
    stream.wait();
    if (got.back() != 0xab) return "written behind the end";
    size_t wrong = 0;
    for (size_t i = 0; i < count(s.dst); i++) {
        const bool chosen = c[source(s.cond, s.dst, i)] != 0;
        const uint8_t *from = chosen ? &t[source(s.then, s.dst, i) * bytes] : &e[source(s.else_, s.dst, i) * bytes];
        wrong += std::memcmp(from, &got[i * bytes], bytes) != 0;
    }
    return wrong == 0 ? "right, dims " + text(s.dst) : std::to_string(wrong) + " elements wrong";
}

} // namespace

void bits() {
    const struct {
        const char *name;
        data_type type;
    } types[] = {{"f32", data_type::f32}, {"bf16", data_type::bf16}, {"f16", data_type::f16},
            {"s32", data_type::s32}, {"s8", data_type::s8}, {"u8", data_type::u8}, {"s64", data_type::s64},
            {"boolean", data_type::boolean}, {"f8_e5m2", data_type::f8_e5m2}, {"f8_e4m3", data_type::f8_e4m3}};
    const Shapes same {{8, 33}, {8, 33}, {8, 33}, {8, 33}}, mixed {{33}, {8, 33}, {1}, {8, 33}};
    for (const auto &row : types) {
        for (const char *mode : {"none", "numpy"})
            answer(std::string("bits of ") + row.name + ", mode " + mode,
                    [&] { return run(row.type, mode, same, false); });
        answer(std::string("bits of ") + row.name + ", broadcast",
                [&] { return run(row.type, "numpy", mixed, false); });
    }
    for (const auto &row : {types[0], types[1], types[2]})
        answer(std::string("bits of ") + row.name + ", NaN and denormals",
                [&] { return run(row.type, "numpy", {{4096}, {4096}, {4096}, {4096}}, true); });
}

void shapes() {
    const struct {
        const char *mode;
        Shapes shapes;
    } rows[] = {
            {"default", {{2, 3}, {2, 3}, {2, 3}, {2, 3}}},
            {"default", {{3}, {2, 3}, {1}, {2, 3}}},
            {"none", {{2, 3}, {2, 3}, {2, 3}, {2, 3}}},
            {"none", {{1, 3}, {2, 3}, {2, 3}, {2, 3}}},
            {"none", {{2, 3}, {2, 3}, {2, 1}, {2, 3}}},
            {"numpy", {{2, 3, 4, 5}, {2, 3, 4, 5}, {2, 3, 4, 5}, {2, 3, 4, 5}}},
            {"numpy", {{4, 5}, {2, 3, 4, 5}, {2, 3, 4, 5}, {2, 3, 4, 5}}},
            {"numpy", {{3, 1, 5}, {2, 3, 4, 5}, {2, 3, 4, 5}, {2, 3, 4, 5}}},
            {"numpy", {{2, 1, 1, 5}, {2, 3, 4, 5}, {1}, {2, 3, 4, 5}}},
            {"numpy", {{2, 1, 4, 5}, {1, 3, 1, 5}, {2, 1, 4, 1}, {2, 3, 4, 5}}},
            {"numpy", {{1}, {5}, {1}, {5}}},
            {"numpy", {{5}, {1}, {5}, {5}}},
            {"numpy", {{5}, {1}, {1}, {5}}},
            {"numpy", {{2, 5}, {5}, {5}, {2, 5}}},
            {"numpy", {{1, 5}, {5}, {5}, {1, 5}}},
            {"numpy", {{3, 5}, {2, 3, 4, 5}, {2, 3, 4, 5}, {2, 3, 4, 5}}},
            {"numpy", {{2, 3}, {2, 3}, {2, 4}, {2, 3}}},
            {"numpy", {{}, {2, 3}, {}, {2, 3}}},
            {"numpy", {{}, {}, {}, {}}},
            {"numpy", {{0, 3}, {0, 3}, {0, 3}, {0, 3}}},
            {"numpy", {{1, 2, 1, 2, 1, 2}, {2, 2, 2, 2, 2, 2}, {2}, {2, 2, 2, 2, 2, 2}}},
            {"numpy", {dims(12, 1), dims(12, 2), dims(12, 2), dims(12, 2)}},
            {"numpy", {{4099}, {7, 4099}, {7, 1}, {7, 4099}}},
    };
    for (const auto &row : rows) {
        const auto &s = row.shapes;
        isolated(std::string("shape ") + text(s.cond) + " ? " + text(s.then) + " : " + text(s.else_) + ", " + row.mode,
                [&] { return run(data_type::f32, row.mode, s, false); });
    }
}

void compilation() {
    const dims unknown {DNNL_GRAPH_UNKNOWN_DIM, DNNL_GRAPH_UNKNOWN_DIM};
    const auto f32 = [](size_t id, const dims &d) { return logical_tensor(id, data_type::f32, d, layout::strided); };
    const logical_tensor c(0, data_type::boolean, dims {3}, layout::strided), a = f32(1, {2, 3}), b = f32(2, {2, 3}),
            d = f32(3, {2, 3}), no_rank(1, data_type::f32, layout::strided);
    const struct {
        const char *name;
        std::vector<logical_tensor> in, out;
    } rows[] = {
            {"as the graph says", {c, a, b}, {d}},
            {"in another order", {b, c, a}, {d}},
            {"for other shapes", {{0, data_type::boolean, dims {7, 1}, layout::strided}, f32(1, {7, 9}), f32(2, {9})},
                    {f32(3, {7, 9})}},
            {"result of unknown rank", {c, a, b}, {{3, data_type::f32, layout::strided}}},
            {"result of unknown dims", {c, a, b}, {f32(3, unknown)}},
            {"result that contradicts", {c, a, b}, {f32(3, {2, 4})}},
            {"result of another rank", {c, a, b}, {f32(3, {6})}},
            {"an input missing", {c, a}, {d}},
            {"an input too many", {c, a, b, f32(77, {1})}, {d}},
            {"no result", {c, a, b}, {}},
            {"an input of another id", {c, a, f32(77, {2, 3})}, {d}},
            {"an input of unknown dims", {c, f32(1, unknown), b}, {d}},
            {"an input of unknown rank", {c, no_rank, b}, {d}},
            {"an input of layout any", {c, {1, data_type::f32, dims {2, 3}, layout::any}, b}, {d}},
            {"an input of another type", {c, {1, data_type::bf16, dims {2, 3}, layout::strided}, b}, {d}},
            {"a result whose elements overlap", {c, a, b}, {{3, data_type::f32, dims {2, 3}, dims {1, 1}}}},
    };
    for (const auto &row : rows)
        isolated(std::string("compile, ") + row.name, [&] {
            Small s;
            s.part.compile(row.in, row.out, s.engine);
            return std::string("success");
        });

    Small s;
    const auto compiled = s.compile();
    for (size_t id : {0u, 1u, 2u, 3u})
        say("query of " + std::to_string(id), text(compiled.query_logical_tensor(id)));
    attempt("query of an unknown id", [&] { compiled.query_logical_tensor(99); });

    auto graph = dnnl::graph::graph(dnnl::engine::kind::cpu);
    graph.add_op(op(0, op::kind::Wildcard, {a}, {d}, "any"));
    graph.finalize();
    const auto part = graph.get_partitions().at(0);
    dnnl_graph_compiled_partition_t raw = nullptr;
    const dnnl_graph_logical_tensor_t *none = nullptr;
    say("compiled partition of an unsupported one", dnnl_graph_compiled_partition_create(&raw, part.get()));
    say("compile an unsupported partition",
            dnnl_graph_partition_compile(part.get(), raw, 0, &none, 0, &none, s.engine.get()));
    dnnl_graph_compiled_partition_destroy(raw);
    say("compiled partition NULL, destroy", dnnl_graph_compiled_partition_destroy(nullptr));
}

void layouts() {
    // The result of layout any takes the order of the sides; what it got is asked for.
    const struct {
        const char *name;
        dims then, else_;
    } rows[] = {{"row-major", {12, 4, 1}, {12, 4, 1}}, {"column-major", {1, 2, 6}, {1, 2, 6}}};
    for (const auto &row : rows) {
        const dims shape {2, 3, 4};
        answer(std::string("result of layout any, ") + row.name, [&] {
            const logical_tensor cond(0, data_type::boolean, shape, layout::strided),
                    then(1, data_type::f32, shape, row.then), else_(2, data_type::f32, shape, row.else_),
                    dst(3, data_type::f32, shape, layout::any);
            const auto part = select_partition(cond, then, else_, dst, "numpy");
            return text(part.compile({cond, then, else_}, {dst}, cpu()).query_logical_tensor(3));
        });
    }
    // Rows with room between them, a column-major side, and a result with strides of its own.
    const dims shape {5, 6};
    const logical_tensor cond(0, data_type::boolean, shape, dims {8, 1}), then(1, data_type::f32, shape, dims {1, 5}),
            else_(2, data_type::f32, shape, dims {7, 1}), dst(3, data_type::f32, shape, dims {10, 1});
    answer("strided operands", [&] {
        const dnnl::engine engine = cpu();
        dnnl::stream stream(engine);
        const auto part = select_partition(cond, then, else_, dst, "numpy");
        auto c = fill(64, 4);
        for (auto &byte : c) byte &= 1;
        std::vector<float> t(64), e(64), got(64, 0.5f);
        for (size_t i = 0; i < 64; i++) t[i] = float(i), e[i] = -float(i);
        part.compile({cond, then, else_}, {dst}, engine)
                .execute(stream,
                        {tensor(cond, engine, c.data()), tensor(then, engine, t.data()), tensor(else_, engine, e.data())},
                        {tensor(dst, engine, got.data())});
        stream.wait();
        size_t wrong = 0;
        for (size_t i = 0; i < 5; i++)
            for (size_t j = 0; j < 10; j++) {
                // Between the rows nothing is written.
                const float expected = j >= 6 ? 0.5f : c[i * 8 + j] ? t[i + 5 * j] : e[i * 7 + j];
                wrong += got[i * 10 + j] != expected;
            }
        return wrong == 0 ? std::string("right") : std::to_string(wrong) + " elements wrong";
    });
}

void in_place() {
    const auto show = [](const std::string &name, const compiled_partition &compiled) {
        dims flat;
        for (const auto &pair : compiled.get_inplace_ports()) {
            flat.push_back(static_cast<int64_t>(pair.first));
            flat.push_back(static_cast<int64_t>(pair.second));
        }
        say(name, text(flat));
    };
    Small s;
    show("in-place pairs", s.compile());
    const logical_tensor one(1, data_type::f32, dims {1}, layout::strided);
    show("in-place pairs, one side broadcast",
            select_partition(s.lt[0], one, s.lt[2], s.lt[3], "numpy")
                    .compile({s.lt[0], one, s.lt[2]}, {s.lt[3]}, s.engine));
    for (size_t side : {1u, 2u}) {
        answer("in place of input " + std::to_string(side), [&] {
            Small t;
            const auto compiled = t.compile();
            auto &memory = side == 1 ? t.then : t.else_;
            compiled.execute(t.stream, t.inputs(), {tensor(t.lt[3], t.engine, memory.data())});
            t.stream.wait();
            t.dst = memory;
            return t.verdict();
        });
    }
}

void execution() {
    Small s;
    const auto compiled = s.compile();
    const auto again = [&](const std::string &name, const std::function<void()> &call) {
        std::fill(s.dst.begin(), s.dst.end(), 0.5f);
        answer(name, [&] {
            call();
            s.stream.wait();
            return s.verdict();
        });
    };
    again("execute", [&] { compiled.execute(s.stream, s.inputs(), s.outputs()); });
    again("execute, second time", [&] { compiled.execute(s.stream, s.inputs(), s.outputs()); });
    again("execute, first form of the call", [&] {
        const auto in = s.inputs(), out = s.outputs();
        const_dnnl_graph_tensor_t c_in[] = {in[0].get(), in[1].get(), in[2].get()}, c_out[] = {out[0].get()};
        const dnnl_status_t status = dnnl_graph_compiled_partition_execute(
                compiled.get(), s.stream.get(), 3, c_in, 1, c_out);
        dnnl::error::wrap_c_api(status, "execution failed");
    });
    const auto scratch = compiled.get_scratchpad_logical_tensor();
    say("scratchpad, id is SIZE_MAX", scratch.get_id() == SIZE_MAX);
    say("scratchpad, type, layout and property",
            std::to_string(static_cast<int>(scratch.get_data_type())) + " "
                    + std::to_string(static_cast<int>(scratch.get_layout_type())) + " "
                    + std::to_string(static_cast<int>(scratch.get_property_type())));
    say("scratchpad, rank", std::to_string(scratch.get_dims().size()));
    again("execute, scratchpad given", [&] {
        std::vector<uint8_t> memory(scratch.get_mem_size() + 64);
        compiled.execute(s.stream, s.inputs(), s.outputs(), tensor(scratch, s.engine, memory.data()));
        s.stream.wait();
    });
    again("execute, scratchpad of the library", [&] {
        compiled.execute(s.stream, s.inputs(), s.outputs(), tensor(scratch, s.engine));
    });
    dnnl::stream second(s.engine);
    again("execute, another stream of the engine", [&] {
        compiled.execute(second, s.inputs(), s.outputs());
        second.wait();
    });
}

} // namespace client
