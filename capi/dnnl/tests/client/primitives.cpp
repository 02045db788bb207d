// Attributes, post-ops, reorders, and primitives that need not be there.
#include "check.hpp"

#include <cmath>
#include <limits>

namespace client {

namespace {

using dnnl::memory;
using tag = memory::format_tag;
using dnnl::primitive_attr;

template <typename T>
std::string list(const T *values, int64_t length) {
    std::string out;
    for (int64_t i = 0; i < length; i++) out += (i ? " " : "") + std::to_string(values[i]);
    return out;
}

// The bytes of a memory, copied out of it.
std::vector<uint8_t> bytes(const memory &m) {
    std::vector<uint8_t> out(m.get_desc().get_size());
    auto *data = m.map_data<uint8_t>();
    std::memcpy(out.data(), data, out.size());
    m.unmap_data(data);
    return out;
}

template <typename T>
memory filled(const dnnl::engine &engine, const memory::desc &desc, const std::vector<T> &values) {
    memory m(desc, engine);
    auto *data = m.map_data<T>();
    std::memset(data, 0, desc.get_size());
    for (size_t i = 0; i < values.size(); i++) data[i] = values[i];
    m.unmap_data(data);
    return m;
}

const std::vector<float> NUMBERS = {0.0f, -0.0f, 0.5f, 1.5f, -2.5f, 300.0f, -300.0f, 3e9f, -3e9f, 1.0f / 3, 65520.0f, 1e-7f};

// The values of 12 numbers behind a reorder, in row-major order and as f32.
std::string through(memory::data_type type, tag format) {
    const dnnl::engine engine = cpu();
    dnnl::stream stream(engine);
    const memory::desc plain({3, 4}, memory::data_type::f32, tag::ab), other({3, 4}, type, format);
    memory from = filled(engine, plain, NUMBERS), to = filled<uint8_t>(engine, other, {}), back = filled<float>(engine, plain, {});
    dnnl::reorder(from, to).execute(stream, from, to);
    stream.wait();
    dnnl::reorder(to, back).execute(stream, to, back);
    stream.wait();
    const auto out = bytes(back);
    return list(reinterpret_cast<const float *>(out.data()), 12);
}

void conversions() {
    static const struct {
        const char *name;
        memory::data_type type;
    } types[] = {
            {"f32", memory::data_type::f32},
            {"bf16", memory::data_type::bf16},
            {"f16", memory::data_type::f16},
            {"s32", memory::data_type::s32},
            {"s8", memory::data_type::s8},
            {"u8", memory::data_type::u8},
    };
    for (const auto &type : types)
        for (const auto &format : {std::make_pair("ab", tag::ab), std::make_pair("ba", tag::ba)})
            answer(std::string("reorder, f32 through ") + type.name + " " + format.first,
                    [&] { return through(type.type, format.second); });
    // From each type to each other: {1, 2, 3}. oneDNN lacks some conversions, and sometimes dies when it is asked for
    // one of those.
    const auto is_lacking = [](memory::data_type from, memory::data_type to) {
        using type = memory::data_type;
        const bool is_half = from == type::bf16 || from == type::f16, to_half = to == type::bf16 || to == type::f16;
        return (is_half && (to == type::s32 || (to_half && from != to))) || (from == type::s32 && to_half)
                || (from == type::u8 && to == type::f16);
    };
    for (const auto &from : types)
        for (const auto &to : types) {
            if (is_lacking(from.type, to.type)) continue;
            answer(std::string("reorder, ") + from.name + " to " + to.name, [&] {
                const dnnl::engine engine = cpu();
                dnnl::stream stream(engine);
                const memory::desc f32({3}, memory::data_type::f32, tag::a);
                memory start = filled<float>(engine, f32, {1, 2, 3}), end = filled<float>(engine, f32, {});
                memory source({{3}, from.type, tag::a}, engine), result({{3}, to.type, tag::a}, engine);
                dnnl::reorder(start, source).execute(stream, start, source);
                dnnl::reorder(source, result).execute(stream, source, result);
                dnnl::reorder(result, end).execute(stream, result, end);
                stream.wait();
                const auto out = bytes(end);
                return list(reinterpret_cast<const float *>(out.data()), 3);
            });
        }
}

void parts() {
    answer("reorder, into a part", [] {
        const dnnl::engine engine = cpu();
        dnnl::stream stream(engine);
        const memory::desc whole({4, 4}, memory::data_type::f32, tag::ab), f32({2, 2}, memory::data_type::f32, tag::ba);
        memory from = filled<float>(engine, f32, {1, 2, 3, 4});
        memory to = filled<float>(engine, whole, {});
        const auto part = whole.submemory_desc({2, 2}, {1, 2});
        dnnl::reorder::primitive_desc made(engine, f32, engine, part);
        dnnl::reorder(made).execute(stream, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, memory(part, engine, [&] {
            auto *data = to.map_data<void>();
            to.unmap_data(data);
            return data;
        }())}});
        stream.wait();
        const auto out = bytes(to);
        return list(reinterpret_cast<const float *>(out.data()), 16);
    });
}

// A reorder with scales and zero points: 6 numbers of type f32 to or from integers.
std::string scaled(bool quantizes, int mask, bool has_scales, bool has_zero_points, memory::data_type type) {
    const dnnl::engine engine = cpu();
    dnnl::stream stream(engine);
    const memory::desc f32({2, 3}, memory::data_type::f32, tag::ab), integers({2, 3}, type, tag::ab);
    const int arg = quantizes ? DNNL_ARG_TO : DNNL_ARG_FROM;
    primitive_attr attr;
    if (has_scales) attr.set_scales_mask(arg, mask);
    if (has_zero_points) attr.set_zero_points_mask(arg, 0);
    const auto &from = quantizes ? f32 : integers, &to = quantizes ? integers : f32;
    memory source = filled<float>(engine, f32, {0, 1.25f, -2.5f, 3.75f, 100, -1000}), result = filled<uint8_t>(engine, to, {});
    if (!quantizes) {
        memory converted = filled<uint8_t>(engine, integers, {});
        dnnl::reorder(source, converted).execute(stream, source, converted);
        stream.wait();
        source = converted;
    }
    const int64_t length = mask == 0 ? 1 : mask == 1 ? 2 : 3;
    std::vector<float> values = {0.5f, 2, 0.25f};
    values.resize(static_cast<size_t>(length));
    memory scales = filled<float>(engine, {{length}, memory::data_type::f32, tag::a}, values);
    memory zero_points = filled<int32_t>(engine, {{1}, memory::data_type::s32, tag::a}, {3});
    dnnl::reorder::primitive_desc made(engine, from, engine, to, attr);
    std::unordered_map<int, memory> args = {{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, result}};
    if (has_scales) args.insert({DNNL_ARG_ATTR_SCALES | arg, scales});
    if (has_zero_points) args.insert({DNNL_ARG_ATTR_ZERO_POINTS | arg, zero_points});
    dnnl::reorder(made).execute(stream, args);
    stream.wait();
    const auto out = bytes(result);
    if (!quantizes) return list(reinterpret_cast<const float *>(out.data()), 6);
    return type == memory::data_type::s8 ? list(reinterpret_cast<const int8_t *>(out.data()), 6) : list(out.data(), 6);
}

void quantization() {
    for (bool quantizes : {true, false})
        for (auto type : {memory::data_type::s8, memory::data_type::u8})
            for (int mask : {0, 1, 2})
                for (int which : {1, 2, 3}) {
                    if (mask != 0 && which == 2) continue;
                    const std::string name = std::string("reorder, ") + (quantizes ? "f32 to " : "f32 from ")
                            + (type == memory::data_type::s8 ? "s8" : "u8") + ", mask " + std::to_string(mask)
                            + (which & 1 ? ", scales" : "") + (which & 2 ? ", zero point" : "");
                    answer(name, [&] { return scaled(quantizes, mask, which & 1, which & 2, type); });
                }
}

void refused() {
    const dnnl::engine engine = cpu();
    const memory::desc f32({2, 3}, memory::data_type::f32, tag::ab), any({2, 3}, memory::data_type::f32, tag::any);
    attempt("reorder, other dims", [&] {
        dnnl::reorder::primitive_desc(engine, f32, engine, {{3, 2}, memory::data_type::f32, tag::ab});
    });
    attempt("reorder, scales along two axes", [&] {
        primitive_attr attr;
        attr.set_scales_mask(DNNL_ARG_DST, 3);
        dnnl::reorder::primitive_desc(engine, f32, engine, {{2, 3}, memory::data_type::s8, tag::ab}, attr);
    });
    attempt("reorder, scales of groups", [&] {
        primitive_attr attr;
        attr.set_scales(DNNL_ARG_SRC, 3, {1, 3}, memory::data_type::f32);
        dnnl::reorder::primitive_desc(engine, {{2, 3}, memory::data_type::s8, tag::ab}, engine, f32, attr);
    });
    attempt("reorder, a sum behind it", [&] {
        primitive_attr attr;
        dnnl::post_ops post_ops;
        post_ops.append_sum();
        attr.set_post_ops(post_ops);
        dnnl::reorder::primitive_desc(engine, f32, engine, f32, attr);
    });
    attempt("reorder, to any", [&] { dnnl::reorder::primitive_desc(engine, f32, engine, any); });
    dnnl_primitive_desc_t made = nullptr;
    const auto md = f32.get();
    say("null reorder, create", dnnl_reorder_primitive_desc_create(nullptr, md, engine.get(), md, engine.get(), nullptr));
    say("null reorder, src", dnnl_reorder_primitive_desc_create(&made, nullptr, engine.get(), md, engine.get(), nullptr));
    say("null reorder, engine", dnnl_reorder_primitive_desc_create(&made, md, nullptr, md, engine.get(), nullptr));
    isolated("reorder, no memory", [&] {
        dnnl::stream stream(engine);
        dnnl::reorder(dnnl::reorder::primitive_desc(engine, f32, engine, f32)).execute(stream, {});
        return std::string("success");
    });
    isolated("reorder, memory of another descriptor", [&] {
        dnnl::stream stream(engine);
        memory from(f32, engine), to({{2, 3}, memory::data_type::s8, tag::ba}, engine);
        dnnl::reorder(dnnl::reorder::primitive_desc(engine, f32, engine, f32)).execute(stream, from, to);
        return std::string("success");
    });
    const dnnl::reorder::primitive_desc pd(engine, f32, engine, {{2, 3}, memory::data_type::bf16, tag::ba});
    say("reorder, kind", std::to_string(static_cast<int>(pd.get_kind())));
    say("reorder, src", pd.src_desc() == f32);
    say("reorder, dst", text(dims(pd.dst_desc().get_strides())));
    say("reorder, weights", std::to_string(pd.weights_desc().get_ndims()));
    say("reorder, scratchpad", std::to_string(pd.scratchpad_desc().get_size()));
    say("reorder, arguments", std::to_string(pd.query_s64(dnnl::query::memory_consumption_s64)) + " "
                    + std::to_string(dnnl_primitive_desc_query_s32(pd.get(), dnnl_query_num_of_inputs_s32, 0)) + " "
                    + std::to_string(dnnl_primitive_desc_query_s32(pd.get(), dnnl_query_num_of_outputs_s32, 0)));
    say("reorder, engines", pd.get_engine() == engine && pd.get_src_engine() == engine && pd.get_dst_engine() == engine);
    say("reorder, desc of argument", pd.query_md(dnnl::query::exec_arg_md, DNNL_ARG_FROM) == f32);
    say("reorder, next", dnnl_primitive_desc_next_impl(dnnl::reorder::primitive_desc(engine, f32, engine, f32).get())
                    != dnnl_success);
    answer("reorder, kind of the primitive",
            [&] { return std::to_string(static_cast<int>(dnnl::reorder(pd).get_kind())); });
    say("null primitive, create", dnnl_primitive_create(nullptr, pd.get()));
    say("null primitive, execute", dnnl_primitive_execute(nullptr, nullptr, 0, nullptr));
    say("null primitive, destroy", dnnl_primitive_destroy(nullptr));
    say("null primitive desc, destroy", dnnl_primitive_desc_destroy(nullptr));
}

} // namespace

void reorders() {
    conversions();
    parts();
    quantization();
    refused();
}

void attributes() {
    primitive_attr attr;
    const auto known = [&] {
        dnnl::fpmath_mode mode;
        bool to_int;
        attr.get_fpmath_mode(mode, to_int);
        return std::to_string(static_cast<int>(mode)) + (to_int ? " to int" : "") + ", accumulation "
                + std::to_string(static_cast<int>(attr.get_accumulation_mode())) + ", scratchpad "
                + std::to_string(static_cast<int>(attr.get_scratchpad_mode()))
                + (attr.get_deterministic() ? ", deterministic" : "");
    };
    say("attributes, default", known());
    attr.set_fpmath_mode(dnnl::fpmath_mode::bf16, true);
    attr.set_accumulation_mode(dnnl::accumulation_mode::relaxed);
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    attr.set_deterministic(true);
    say("attributes, set", known());
    const primitive_attr copy(attr);
    say("attributes, copied", std::to_string(static_cast<int>(copy.get_scratchpad_mode())));
    say("attributes, mode 9", dnnl_primitive_attr_set_fpmath_mode(attr.get(), static_cast<dnnl_fpmath_mode_t>(9)));
    say("attributes, scratchpad 9",
            dnnl_primitive_attr_set_scratchpad_mode(attr.get(), static_cast<dnnl_scratchpad_mode_t>(9)));
    say("attributes, accumulation 9",
            dnnl_primitive_attr_set_accumulation_mode(attr.get(), static_cast<dnnl_accumulation_mode_t>(9)));
    attempt("attributes, scales", [&] { attr.set_scales_mask(DNNL_ARG_SRC, 2); });
    attempt("attributes, scales of mask -1", [&] { attr.set_scales_mask(DNNL_ARG_SRC, -1); });
    attempt("attributes, scales of argument -1", [&] { attr.set_scales_mask(-1, 0); });
    attempt("attributes, scales of groups",
            [&] { attr.set_scales(DNNL_ARG_WEIGHTS, 3, {32, 1}, memory::data_type::f16); });
    attempt("attributes, zero points of groups",
            [&] { attr.set_zero_points(DNNL_ARG_WEIGHTS, 3, {32, 1}, memory::data_type::s8); });
    attempt("attributes, rounding", [&] { attr.set_rounding_mode(DNNL_ARG_DST, dnnl::rounding_mode::stochastic); });
    say("attributes, rounding read",
            std::to_string(static_cast<int>(attr.get_rounding_mode(DNNL_ARG_DST)))
                    + std::to_string(static_cast<int>(attr.get_rounding_mode(DNNL_ARG_SRC))));
    attr.set_rnn_data_qparams(2.0f, 3.0f);
    attr.set_rnn_weights_qparams(1, {0.5f, 0.25f});
    float scale, shift;
    attr.get_rnn_data_qparams(scale, shift);
    int mask;
    std::vector<float> scales;
    attr.get_rnn_weights_qparams(mask, scales);
    say("attributes, rnn", list(&scale, 1) + " " + list(&shift, 1) + " mask " + std::to_string(mask) + " "
                    + list(scales.data(), static_cast<int64_t>(scales.size())));
    say("null attributes, create", dnnl_primitive_attr_create(nullptr));
    say("null attributes, clone", dnnl_primitive_attr_clone(nullptr, attr.get()));
    say("null attributes, set", dnnl_primitive_attr_set_deterministic(nullptr, 1));
    say("null attributes, post-ops", dnnl_primitive_attr_set_post_ops(nullptr, nullptr));
    say("null attributes, destroy", dnnl_primitive_attr_destroy(nullptr));

    dnnl::post_ops post_ops;
    post_ops.append_sum(2.0f, 1, memory::data_type::s8);
    post_ops.append_eltwise(dnnl::algorithm::eltwise_relu, 0.5f, 0.25f);
    post_ops.append_binary(dnnl::algorithm::binary_add, {{2, 3}, memory::data_type::f32, tag::ab});
    post_ops.append_prelu(2);
    post_ops.append_dw(memory::data_type::s8, memory::data_type::f32, memory::data_type::u8, 3, 1, 1);
    attr.set_post_ops(post_ops);
    const auto read = attr.get_post_ops();
    std::string kinds;
    for (int i = 0; i < read.len(); i++) kinds += std::to_string(static_cast<int>(read.kind(i))) + " ";
    say("post-ops, kinds", kinds);
    int32_t zero_point;
    memory::data_type type;
    read.get_params_sum(0, scale, zero_point, type);
    say("post-ops, sum", list(&scale, 1) + " " + std::to_string(zero_point) + " " + std::to_string(static_cast<int>(type)));
    dnnl::algorithm algorithm;
    float alpha, beta;
    read.get_params_eltwise(1, algorithm, alpha, beta);
    say("post-ops, eltwise", std::to_string(static_cast<int>(algorithm)) + " " + list(&alpha, 1) + " " + list(&beta, 1));
    memory::desc desc;
    read.get_params_binary(2, algorithm, desc);
    say("post-ops, binary", std::to_string(static_cast<int>(algorithm)) + " " + text(dims(desc.get_dims())));
    attempt("post-ops, sum at eltwise", [&] { read.get_params_sum(1, scale, zero_point, type); });
    attempt("post-ops, sum at 9", [&] { read.get_params_sum(9, scale, zero_point, type); });
    attempt("post-ops, eltwise of binary", [&] { post_ops.append_eltwise(dnnl::algorithm::binary_add, 0, 0); });
    attempt("post-ops, binary of eltwise", [&] { post_ops.append_binary(dnnl::algorithm::eltwise_relu, desc); });
    say("post-ops, kind at 9", std::to_string(dnnl_post_ops_get_kind(post_ops.get(), 9)));
    dnnl::post_ops many;
    for (int i = 0; i < 32; i++) many.append_sum();
    attempt("post-ops, 33", [&] { many.append_sum(); });
    say("null post-ops, create", dnnl_post_ops_create(nullptr));
    say("null post-ops, append", dnnl_post_ops_append_sum(nullptr, 1, 0, dnnl_f32));
    say("null post-ops, length", std::to_string(dnnl_post_ops_len(nullptr)));
    say("null post-ops, destroy", dnnl_post_ops_destroy(nullptr));
}

// Primitives that are not here answer `unimplemented` and do not write their output.
void absent() {
    const dnnl::engine engine = cpu();
    const memory::desc a({2, 3}, memory::data_type::f32, tag::ab), b({3, 4}, memory::data_type::f32, tag::ab),
            c({2, 4}, memory::data_type::f32, tag::ab);
    const auto untouched = reinterpret_cast<dnnl_primitive_desc_t>(uintptr_t {1});
    dnnl_primitive_desc_t made = untouched;
    say("matmul", dnnl_matmul_primitive_desc_create(&made, engine.get(), a.get(), b.get(), nullptr, c.get(), nullptr));
    say("matmul, what it would make is left alone", made == untouched);
    const float one[] = {1}, *factors = one;
    made = untouched;
    say("resampling of 0 dims", dnnl_resampling_forward_primitive_desc_create(&made, engine.get(),
                dnnl_forward_inference, dnnl_resampling_nearest, factors, nullptr, nullptr, nullptr)
                    != dnnl_success);
    say("resampling, what it would make is left alone", made == untouched);
    int capacity = 0;
    say("primitive cache", dnnl_get_primitive_cache_capacity(&capacity));
    say("primitive cache, capacity", std::to_string(capacity));
    say("primitive cache, set", dnnl_set_primitive_cache_capacity(7));
    dnnl_get_primitive_cache_capacity(&capacity);
    say("primitive cache, read", std::to_string(capacity));
    say("primitive cache, set -1", dnnl_set_primitive_cache_capacity(-1));
    say("primitive cache, null", dnnl_get_primitive_cache_capacity(nullptr));
    say("jit dump", dnnl_set_jit_dump(0));
    say("jit profiling", dnnl_set_jit_profiling_flags(0));
    say("jit profiling 99", dnnl_set_jit_profiling_flags(99));
    say("jit dump dir, null", dnnl_set_jit_profiling_jitdumpdir(nullptr));
    say("isa hints", std::to_string(dnnl_get_cpu_isa_hints()));
}

} // namespace client
