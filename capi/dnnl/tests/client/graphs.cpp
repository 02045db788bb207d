// Ops, graphs, partitions.
#include "check.hpp"

namespace client {

namespace {

logical_tensor f32(size_t id, const dims &d = {4}) { return {id, data_type::f32, d, layout::strided}; }
logical_tensor boolean(size_t id, const dims &d = {4}) { return {id, data_type::boolean, d, layout::strided}; }

dnnl::graph::graph cpu_graph() { return dnnl::graph::graph(dnnl::engine::kind::cpu); }

std::string added(const op &o) {
    auto graph = cpu_graph();
    return name_of(static_cast<dnnl_status_t>(graph.add_op(o, false)));
}

std::string finalized(const std::vector<op> &list) {
    auto graph = cpu_graph();
    for (const auto &o : list) graph.add_op(o);
    return name_of(dnnl_graph_graph_finalize(graph.get()));
}

std::string ids(const std::vector<size_t> &values) { return text(dims(values.begin(), values.end())); }

std::string ids(const std::vector<logical_tensor> &values) {
    dims out;
    for (const auto &value : values) out.push_back(static_cast<int64_t>(value.get_id()));
    return text(out);
}

void list(const std::string &name, const std::vector<partition> &all) {
    say(name + ", partitions", std::to_string(all.size()));
    size_t number = 0;
    for (const auto &p : all) {
        say(name + ", partition " + std::to_string(number++),
                std::string(p.is_supported() ? "runs" : "does not run") + ", ops " + ids(p.get_ops()) + ", in "
                        + ids(p.get_input_ports()) + ", out " + ids(p.get_output_ports()) + ", on cpu "
                        + (p.get_engine_kind() == dnnl::engine::kind::cpu ? "yes" : "no"));
    }
}

// An op that makes one of an image of {1, 1, 4, 4}, its windows of {1, 1, 2, 2} and weights of {1, 1, 2, 2} of the other
// two, compiled and executed on numbers that count from 1.
std::string convolved(op::kind kind, const dims &first, const dims &second, const dims &result) {
    const logical_tensor a = f32(0, first), b = f32(1, second), to = f32(2, result);
    op o(0, kind, {a, b}, {to}, "convolution");
    o.set_attr<std::vector<int64_t>>(op::attr::strides, {2, 2});
    for (auto none : {op::attr::pads_begin, op::attr::pads_end}) o.set_attr<std::vector<int64_t>>(none, {0, 0});
    o.set_attr<std::vector<int64_t>>(op::attr::dilations, {1, 1});
    o.set_attr<std::string>(op::attr::data_format, "NCX");
    const bool transposed = kind == op::kind::ConvTranspose || kind == op::kind::ConvTransposeBackwardData
            || kind == op::kind::ConvTransposeBackwardWeights;
    o.set_attr<std::string>(op::attr::weights_format, transposed ? "IOX" : "OIX");
    if (kind == op::kind::ConvolutionBackwardData) o.set_attr<std::vector<int64_t>>(op::attr::dst_shape, result);
    if (kind == op::kind::ConvolutionBackwardWeights || kind == op::kind::ConvTransposeBackwardWeights)
        o.set_attr<std::vector<int64_t>>(op::attr::weights_shape, result);
    auto graph = cpu_graph();
    graph.add_op(o);
    graph.finalize();
    const auto all = graph.get_partitions();
    if (all.size() != 1 || !all[0].is_supported()) return "not supported";
    const auto engine = cpu();
    dnnl::stream stream(engine);
    const auto compiled = all[0].compile({a, b}, {to}, engine);
    auto counted = [](const dims &shape) {
        size_t elements = 1;
        for (auto dim : shape) elements *= static_cast<size_t>(dim);
        std::vector<float> numbers(elements);
        for (size_t i = 0; i < elements; i++) numbers[i] = static_cast<float>(i + 1);
        return numbers;
    };
    auto x = counted(first), y = counted(second), z = counted(result);
    compiled.execute(stream, {tensor(a, engine, x.data()), tensor(b, engine, y.data())}, {tensor(to, engine, z.data())});
    stream.wait();
    dims whole;
    for (auto number : z) whole.push_back(static_cast<int64_t>(number));
    return text(whole);
}

} // namespace

void ops() {
    dnnl_graph_op_t raw = nullptr;
    size_t id = 0;
    dnnl_graph_op_kind_t kind = dnnl_graph_op_abs;
    say("op, create", dnnl_graph_op_create(&raw, 42, dnnl_graph_op_select, ""));
    say("op, get id", dnnl_graph_op_get_id(raw, &id));
    say("op, id", std::to_string(id));
    say("op, get kind", dnnl_graph_op_get_kind(raw, &kind));
    say("op, kind is select", kind == dnnl_graph_op_select);
    dnnl_graph_op_destroy(raw);
    say("op NULL, destroy", dnnl_graph_op_destroy(nullptr));

    op scratch(1, op::kind::Select, "scratch");
    const float real = 1.5f;
    const int64_t whole[] = {1, 2};
    const uint8_t flag = 1;
    say("attribute f32", dnnl_graph_op_set_attr_f32(scratch.get(), dnnl_graph_op_attr_alpha, &real, 1));
    say("attribute s64", dnnl_graph_op_set_attr_s64(scratch.get(), dnnl_graph_op_attr_axis, whole, 1));
    say("attribute s64 list", dnnl_graph_op_set_attr_s64(scratch.get(), dnnl_graph_op_attr_axes, whole, 2));
    say("attribute bool", dnnl_graph_op_set_attr_bool(scratch.get(), dnnl_graph_op_attr_keep_dims, &flag, 1));
    say("attribute bool of length 0",
            dnnl_graph_op_set_attr_bool(scratch.get(), dnnl_graph_op_attr_keep_dims, &flag, 0));
    say("attribute str", dnnl_graph_op_set_attr_str(scratch.get(), dnnl_graph_op_attr_mode, "hello", 5));
    say("attribute str of a wrong length",
            dnnl_graph_op_set_attr_str(scratch.get(), dnnl_graph_op_attr_mode, "hello", 1));
    say("attribute str of length 0",
            dnnl_graph_op_set_attr_str(scratch.get(), dnnl_graph_op_attr_mode, "hello", 0));

    const logical_tensor c = boolean(0), a = f32(1), b = f32(2), d = f32(3);
    for (const char *mode : {"default", "none", "numpy", "elsewise"})
        say(std::string("add a select of mode ") + mode, added(select_op(c, a, b, d, mode)));
    say("add a select of two inputs", added(op(0, op::kind::Select, {c, a}, {d}, "s")));
    say("add a select of no output", added(op(0, op::kind::Select, {c, a, b}, {}, "s")));
    say("add a select of a condition of f32", added(select_op(f32(0), a, b, d, "numpy")));
    say("add a select of two types",
            added(select_op(c, a, {2, data_type::s32, dims {4}, layout::strided}, d, "numpy")));
    say("add a select of a stranger's attribute", [&] {
        op o = select_op(c, a, b, d, "numpy");
        o.set_attr<std::vector<int64_t>>(op::attr::strides, {1, 1});
        return added(o);
    }());
    say("add a select of a mode that is a number", [&] {
        op o = select_op(c, a, b, d, "default");
        const int64_t one = 1;
        dnnl_graph_op_set_attr_s64(o.get(), dnnl_graph_op_attr_auto_broadcast, &one, 1);
        return added(o);
    }());
    const struct {
        const char *name;
        data_type type;
    } types[] = {{"f32", data_type::f32}, {"bf16", data_type::bf16}, {"f16", data_type::f16},
            {"s32", data_type::s32}, {"s8", data_type::s8}, {"u8", data_type::u8}, {"s64", data_type::s64},
            {"boolean", data_type::boolean}, {"f8_e5m2", data_type::f8_e5m2}, {"f8_e4m3", data_type::f8_e4m3},
            {"s4", data_type::s4}, {"undef", data_type::undef}};
    for (const auto &row : types) {
        const auto side = [&](size_t number) { return logical_tensor(number, row.type, dims {4}, layout::strided); };
        say(std::string("add a select of type ") + row.name, added(select_op(c, side(1), side(2), side(3), "numpy")));
    }
}

void graphs() {
    auto graph = cpu_graph();
    const op first = select_op(boolean(0), f32(1), f32(2), f32(3), "numpy");
    size_t number = 99;
    dnnl_graph_partition_t out[2] = {};
    say("graph, add", static_cast<dnnl_status_t>(graph.add_op(first, false)));
    say("graph, add again", static_cast<dnnl_status_t>(graph.add_op(first, false)));
    say("graph, finalized before", graph.is_finalized());
    say("graph, filter before finalize", dnnl_graph_graph_filter(graph.get(), dnnl_graph_partition_policy_fusion));
    say("graph, number before filter", dnnl_graph_graph_get_partition_num(graph.get(), &number));
    say("graph, it is", std::to_string(number));
    say("graph, finalize", dnnl_graph_graph_finalize(graph.get()));
    say("graph, finalized", graph.is_finalized());
    say("graph, finalize again", dnnl_graph_graph_finalize(graph.get()));
    op late(9, op::kind::Abs, {f32(3)}, {f32(4)}, "late");
    say("graph, add after finalize", static_cast<dnnl_status_t>(graph.add_op(late, false)));
    say("graph, fpmath mode after finalize", dnnl_graph_graph_set_fpmath_mode(graph.get(), dnnl_fpmath_mode_any, 0));
    say("graph, filter by policy 9",
            dnnl_graph_graph_filter(graph.get(), static_cast<dnnl_graph_partition_policy_t>(9)));
    for (int i = 0; i < 2; i++) {
        const std::string turn = i ? ", second time" : "";
        say("graph, filter" + turn, dnnl_graph_graph_filter(graph.get(), dnnl_graph_partition_policy_fusion));
        say("graph, number" + turn, dnnl_graph_graph_get_partition_num(graph.get(), &number));
        say("graph, it is" + turn, std::to_string(number));
        say("graph, partitions" + turn, dnnl_graph_graph_get_partitions(graph.get(), number, out));
        dnnl_graph_partition_destroy(out[0]);
    }
    say("graph, partitions of a wrong number", dnnl_graph_graph_get_partitions(graph.get(), 2, out));

    using mode = dnnl::graph::fpmath_mode;
    dnnl::graph::graph strict(dnnl::engine::kind::cpu, mode::bf16);
    mode m = mode::strict;
    bool to_int = true;
    strict.get_fpmath_mode(m, to_int);
    say("graph, fpmath mode", std::to_string(static_cast<int>(m)) + (to_int ? " on integers" : ""));
    strict.set_fpmath_mode(mode::f16, true);
    strict.get_fpmath_mode(m, to_int);
    say("graph, fpmath mode set", std::to_string(static_cast<int>(m)) + (to_int ? " on integers" : ""));
    dnnl_graph_graph_t raw = nullptr;
    say("graph of mode 77",
            dnnl_graph_graph_create_with_fpmath_mode(&raw, dnnl_cpu, static_cast<dnnl_fpmath_mode_t>(77)));
    raw = nullptr;
    say("graph of kind 77", dnnl_graph_graph_create(&raw, static_cast<dnnl_engine_kind_t>(77)));
    say("graph NULL, destroy", dnnl_graph_graph_destroy(nullptr));
    say("graph, empty", finalized({}));

    const auto abs = [](size_t id, size_t from, size_t to) {
        return op(id, op::kind::Abs, {f32(from)}, {f32(to)}, "abs");
    };
    say("graph, chain", finalized({abs(0, 0, 1), abs(1, 1, 2)}));
    say("graph, chain upside down", finalized({abs(1, 1, 2), abs(0, 0, 1)}));
    say("graph, circle", finalized({abs(0, 0, 1), abs(1, 1, 0)}));
    say("graph, op that feeds itself", finalized({abs(0, 0, 0)}));
    say("graph, two producers", finalized({abs(0, 0, 2), abs(1, 1, 2)}));
    say("graph, unequal mentions",
            finalized({abs(0, 0, 1), op(1, op::kind::Abs, {f32(1, {2, 2})}, {f32(2, {2, 2})}, "abs")}));
    // One mention leaves open what the other says.
    const logical_tensor dense(1, data_type::f32, dims {2, 3}, layout::strided);
    const struct {
        const char *what;
        logical_tensor other;
    } mentions[] = {
            {"the layout undef", {1, data_type::f32, dims {2, 3}, layout::undef}},
            {"the layout any", {1, data_type::f32, dims {2, 3}, layout::any}},
            {"an unknown dim", {1, data_type::f32, dims {2, DNNL_GRAPH_UNKNOWN_DIM}, layout::strided}},
            {"an unknown rank", {1, data_type::f32, layout::strided}},
            {"a property", {1, data_type::f32, dims {2, 3}, layout::strided, property::constant}},
            {"nothing", dense},
    };
    for (const auto &row : mentions) {
        const std::string name = std::string("graph, mentions that differ in ") + row.what;
        const auto out = f32(2, {2, 3});
        say(name + ", one op", finalized({op(0, op::kind::Add, {row.other, dense}, {out}, "add")}));
        say(name + ", two ops", finalized({op(0, op::kind::Abs, {f32(0, {2, 3})}, {row.other}, "abs"),
                                        op(1, op::kind::Exp, {dense}, {out}, "exp")}));
    }
}

void partitions() {
    const auto wildcard = [](size_t id, size_t from, size_t to) {
        return op(id, op::kind::Wildcard, {f32(from)}, {f32(to)}, "any");
    };
    auto graph = cpu_graph();
    graph.add_op(wildcard(0, 0, 1));
    graph.add_op(select_op(boolean(10), f32(1), f32(2), f32(3), "numpy"), false);
    op select(1, op::kind::Select, {boolean(10), f32(1), f32(2)}, {f32(3)}, "select");
    graph.add_op(select);
    graph.add_op(wildcard(2, 3, 4));
    graph.add_op(op(3, op::kind::End, {f32(4)}, {}, "end"));
    graph.finalize();
    list("wildcards around a select", graph.get_partitions());
    list("the same, policy debug", graph.get_partitions(partition::policy::debug));

    // A select between a convolution and a pool.
    const dims image {1, 4, 6, 6}, small {1, 4, 3, 3};
    auto network = cpu_graph();
    op convolution(0, op::kind::Convolution, {f32(0, image), f32(1, {4, 4, 1, 1})}, {f32(2, image)}, "convolution");
    op pool(2, op::kind::MaxPool, {f32(5, image)}, {f32(6, small)}, "pool");
    for (op *window : {&convolution, &pool}) {
        const int64_t step = window == &pool ? 2 : 1;
        window->set_attr<std::vector<int64_t>>(op::attr::strides, {step, step});
        window->set_attr<std::vector<int64_t>>(op::attr::pads_begin, {0, 0});
        window->set_attr<std::vector<int64_t>>(op::attr::pads_end, {0, 0});
        window->set_attr<std::vector<int64_t>>(op::attr::dilations, {1, 1});
        window->set_attr<std::string>(op::attr::data_format, "NCX");
    }
    convolution.set_attr<std::string>(op::attr::weights_format, "OIX");
    pool.set_attr<std::vector<int64_t>>(op::attr::kernel, {2, 2});
    network.add_op(convolution);
    network.add_op(op(1, op::kind::Select, {boolean(3, image), f32(2, image), f32(4, {1})}, {f32(5, image)}, "mask"));
    network.add_op(pool);
    network.finalize();
    list("a part of a network", network.get_partitions());
    list("a part of a network, policy debug", network.get_partitions(partition::policy::debug));

    // Transposed convolutions, and the gradients of both forms.
    const dims sixteen {1, 1, 4, 4}, four {1, 1, 2, 2};
    auto convolve = [](const char *name, op::kind kind, const dims &a, const dims &b, const dims &to) {
        answer(name, [&] { return convolved(kind, a, b, to); });
    };
    convolve("a transposed convolution", op::kind::ConvTranspose, four, four, sixteen);
    convolve("a transposed convolution, gradient of data", op::kind::ConvTransposeBackwardData, sixteen, four, four);
    convolve("a transposed convolution, gradient of weights", op::kind::ConvTransposeBackwardWeights, four, sixteen, four);
    convolve("a convolution, gradient of data", op::kind::ConvolutionBackwardData, four, four, sixteen);
    convolve("a convolution, gradient of weights", op::kind::ConvolutionBackwardWeights, sixteen, four, four);

    const Small s;
    const partition alone(select_op(s.lt[0], s.lt[1], s.lt[2], s.lt[3], "numpy"), dnnl::engine::kind::cpu);
    list("a partition of one op", {alone});
    const partition odd(wildcard(5, 0, 1), dnnl::engine::kind::cpu);
    list("a partition of a wildcard", {odd});
    size_t id[2];
    dnnl_graph_logical_tensor_t lt[4];
    say("ops of a partition, wrong number", dnnl_graph_partition_get_ops(s.part.get(), 2, id));
    say("inputs of a partition, wrong number", dnnl_graph_partition_get_input_ports(s.part.get(), 4, lt));
    say("outputs of a partition, wrong number", dnnl_graph_partition_get_output_ports(s.part.get(), 2, lt));
    say("partition NULL, destroy", dnnl_graph_partition_destroy(nullptr));
}

} // namespace client
