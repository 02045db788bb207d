// Wrong calls. A library may die of one, so each is in a process of its own.
#include "check.hpp"

#include <climits>

namespace client {

namespace {

constexpr dnnl_graph_tensor_property_t no_property = dnnl_graph_tensor_property_undef;
constexpr dnnl_graph_layout_type_t strided = dnnl_graph_layout_type_strided;

struct Call {
    const char *name;
    dnnl_status_t (*run)();
};

void each(const std::string &what, const std::vector<Call> &calls) {
    for (const auto &call : calls)
        isolated(what + " " + call.name, [&] { return std::string(name_of(call.run())); });
}

// Out parameters that are never read.
dnnl_graph_logical_tensor_t lt;
dnnl_engine_t engine_out;
dnnl_stream_t stream_out;
dnnl_graph_tensor_t tensor_out;
dnnl_graph_op_t op_out;
dnnl_graph_partition_t partition_out;
dnnl_graph_compiled_partition_t compiled_out;
size_t size_out;
uint8_t byte_out;
void *pointer_out;
dnnl_engine_kind_t kind_out;

template <typename T>
T number(int value) {
    return static_cast<T>(value);
}

} // namespace

void nulls() {
    each("null,", {
        {"engine_create", [] { return dnnl_engine_create(nullptr, dnnl_cpu, 0); }},
        {"engine_get_kind, engine", [] { return dnnl_engine_get_kind(nullptr, &kind_out); }},
        {"engine_get_kind, kind", [] { return dnnl_engine_get_kind(cpu().get(), nullptr); }},
        {"stream_create, engine", [] { return dnnl_stream_create(&stream_out, nullptr, 1); }},
        {"stream_create, stream", [] { return dnnl_stream_create(nullptr, cpu().get(), 1); }},
        {"stream_get_engine", [] { return dnnl_stream_get_engine(nullptr, &engine_out); }},
        {"stream_wait", [] { return dnnl_stream_wait(nullptr); }},
        {"get_default_fpmath_mode", [] { return dnnl_get_default_fpmath_mode(nullptr); }},
        {"allocator_create", [] { return dnnl_graph_allocator_create(nullptr, nullptr, nullptr); }},
        {"make_engine, engine", [] { return dnnl_graph_make_engine_with_allocator(nullptr, dnnl_cpu, 0, nullptr); }},
        {"make_engine, allocator",
                [] { return dnnl_graph_make_engine_with_allocator(&engine_out, dnnl_cpu, 0, nullptr); }},
        {"logical_tensor_init",
                [] { return dnnl_graph_logical_tensor_init(nullptr, 0, dnnl_f32, 1, strided, no_property); }},
        {"logical_tensor_init_with_dims, dims", [] {
            return dnnl_graph_logical_tensor_init_with_dims(&lt, 0, dnnl_f32, 1, nullptr, strided, no_property);
        }},
        {"logical_tensor_init_with_strides, strides", [] {
            const dnnl_dims_t d = {1};
            return dnnl_graph_logical_tensor_init_with_strides(&lt, 0, dnnl_f32, 1, d, nullptr, no_property);
        }},
        {"logical_tensor_get_mem_size", [] { return dnnl_graph_logical_tensor_get_mem_size(nullptr, &size_out); }},
        {"logical_tensor_is_equal", [] { return dnnl_graph_logical_tensor_is_equal(&lt, nullptr, &byte_out); }},
        {"tensor_create, engine", [] { return dnnl_graph_tensor_create(&tensor_out, &lt, nullptr, nullptr); }},
        {"tensor_create, logical tensor",
                [] { return dnnl_graph_tensor_create(&tensor_out, nullptr, cpu().get(), nullptr); }},
        {"tensor_create_scalar", [] { return dnnl_graph_tensor_create_scalar(&tensor_out, nullptr, &size_out); }},
        {"tensor_get_data_handle", [] { return dnnl_graph_tensor_get_data_handle(nullptr, &pointer_out); }},
        {"tensor_set_data_handle", [] { return dnnl_graph_tensor_set_data_handle(nullptr, nullptr); }},
        {"tensor_get_engine", [] { return dnnl_graph_tensor_get_engine(nullptr, &engine_out); }},
        {"tensor_get_logical_tensor", [] { return dnnl_graph_tensor_get_logical_tensor(nullptr, &lt); }},
        {"op_create, op", [] { return dnnl_graph_op_create(nullptr, 0, dnnl_graph_op_select, ""); }},
        {"op_create, name", [] { return dnnl_graph_op_create(&op_out, 0, dnnl_graph_op_select, nullptr); }},
        {"op_add_input", [] { return dnnl_graph_op_add_input(nullptr, &lt); }},
        {"op_add_output", [] { return dnnl_graph_op_add_output(op(0, op::kind::Abs).get(), nullptr); }},
        {"op_set_attr_f32", [] {
            return dnnl_graph_op_set_attr_f32(op(0, op::kind::Abs).get(), dnnl_graph_op_attr_alpha, nullptr, 1);
        }},
        {"op_set_attr_str", [] {
            return dnnl_graph_op_set_attr_str(op(0, op::kind::Abs).get(), dnnl_graph_op_attr_mode, nullptr, 1);
        }},
        {"op_get_id", [] { return dnnl_graph_op_get_id(nullptr, &size_out); }},
        {"graph_create", [] { return dnnl_graph_graph_create(nullptr, dnnl_cpu); }},
        {"add_op, graph", [] { return dnnl_graph_add_op(nullptr, op(0, op::kind::Abs).get()); }},
        {"add_op, op", [] {
            return dnnl_graph_add_op(dnnl::graph::graph(dnnl::engine::kind::cpu).get(), nullptr);
        }},
        {"graph_finalize", [] { return dnnl_graph_graph_finalize(nullptr); }},
        {"graph_is_finalized", [] { return dnnl_graph_graph_is_finalized(nullptr, &byte_out); }},
        {"graph_filter", [] { return dnnl_graph_graph_filter(nullptr, dnnl_graph_partition_policy_fusion); }},
        {"graph_get_partition_num", [] { return dnnl_graph_graph_get_partition_num(nullptr, &size_out); }},
        {"graph_get_partitions", [] { return dnnl_graph_graph_get_partitions(nullptr, 1, &partition_out); }},
        {"partition_create_with_op",
                [] { return dnnl_graph_partition_create_with_op(&partition_out, nullptr, dnnl_cpu); }},
        {"partition_get_op_num", [] { return dnnl_graph_partition_get_op_num(nullptr, &size_out); }},
        {"partition_get_ops", [] { return dnnl_graph_partition_get_ops(nullptr, 1, &size_out); }},
        {"partition_get_id", [] { return dnnl_graph_partition_get_id(nullptr, &size_out); }},
        {"partition_is_supported", [] { return dnnl_graph_partition_is_supported(nullptr, &byte_out); }},
        {"partition_get_input_ports", [] { return dnnl_graph_partition_get_input_ports(nullptr, 1, &lt); }},
        {"partition_get_engine_kind", [] { return dnnl_graph_partition_get_engine_kind(nullptr, &kind_out); }},
        {"compiled_partition_create", [] { return dnnl_graph_compiled_partition_create(&compiled_out, nullptr); }},
        {"partition_compile",
                [] { return dnnl_graph_partition_compile(nullptr, nullptr, 0, nullptr, 0, nullptr, nullptr); }},
        {"compiled_partition_execute",
                [] { return dnnl_graph_compiled_partition_execute(nullptr, nullptr, 0, nullptr, 0, nullptr); }},
        {"compiled_partition_query_logical_tensor",
                [] { return dnnl_graph_compiled_partition_query_logical_tensor(nullptr, 0, &lt); }},
        {"compiled_partition_get_inplace_ports",
                [] { return dnnl_graph_compiled_partition_get_inplace_ports(nullptr, &size_out, nullptr); }},
        {"compiled_partition_get_scratchpad",
                [] { return dnnl_graph_compiled_partition_get_scratchpad_logical_tensor(nullptr, &lt); }},
        {"get_compiled_partition_cache_capacity",
                [] { return dnnl_graph_get_compiled_partition_cache_capacity(nullptr); }},
        {"get_constant_tensor_cache", [] { return dnnl_graph_get_constant_tensor_cache(nullptr); }},
    });
}

// Enums come as integers: what no enum holds is refused.
void numbers() {
    each("number,", {
        {"engine kind 77", [] { return dnnl_engine_create(&engine_out, number<dnnl_engine_kind_t>(77), 0); }},
        {"data type 99", [] {
            return dnnl_graph_logical_tensor_init(&lt, 0, number<dnnl_data_type_t>(99), 1, strided, no_property);
        }},
        {"layout 99", [] {
            return dnnl_graph_logical_tensor_init(
                    &lt, 0, dnnl_f32, 1, number<dnnl_graph_layout_type_t>(99), no_property);
        }},
        {"property 99", [] {
            return dnnl_graph_logical_tensor_init(
                    &lt, 0, dnnl_f32, 1, strided, number<dnnl_graph_tensor_property_t>(99));
        }},
        {"op kind 9999",
                [] { return dnnl_graph_op_create(&op_out, 0, number<dnnl_graph_op_kind_t>(9999), "stranger"); }},
        {"attribute 9999", [] {
            const float value = 1;
            return dnnl_graph_op_set_attr_f32(
                    op(0, op::kind::Abs).get(), number<dnnl_graph_op_attr_t>(9999), &value, 1);
        }},
        {"length SIZE_MAX of an attribute", [] {
            const int64_t value = 1;
            return dnnl_graph_op_set_attr_s64(op(0, op::kind::Abs).get(), dnnl_graph_op_attr_axes, &value, SIZE_MAX);
        }},
    });
}

void faults() {
    const auto run = [](const std::string &name, const std::function<void(Small &)> &prepare,
                             const std::function<std::vector<tensor>(Small &)> &inputs,
                             const std::function<std::vector<tensor>(Small &)> &outputs) {
        isolated("fault, " + name, [&] {
            Small s;
            prepare(s);
            const auto compiled = s.compile();
            compiled.execute(s.stream, inputs(s), outputs(s));
            s.stream.wait();
            return std::string("success");
        });
    };
    const auto nothing = [](Small &) {};
    const auto in = [](Small &s) { return s.inputs(); };
    const auto out = [](Small &s) { return s.outputs(); };
    run("too few inputs", nothing,
            [](Small &s) { return std::vector<tensor> {tensor(s.lt[0], s.engine, s.cond.data())}; }, out);
    run("no outputs", nothing, in, [](Small &) { return std::vector<tensor> {}; });
    run("inputs in another order", nothing, [](Small &s) {
        auto list = s.inputs();
        return std::vector<tensor> {list[2], list[0], list[1]};
    }, out);
    run("an input without memory", nothing, [](Small &s) {
        auto list = s.inputs();
        list[1] = tensor(s.lt[1], s.engine, nullptr);
        return list;
    }, out);
    run("an output without memory", nothing, in,
            [](Small &s) { return std::vector<tensor> {tensor(s.lt[3], s.engine, nullptr)}; });
    run("an input of another shape", nothing, [](Small &s) {
        auto list = s.inputs();
        list[1] = tensor({1, data_type::f32, dims {3, 2}, layout::strided}, s.engine, s.then.data());
        return list;
    }, out);
    run("an input of another type", nothing, [](Small &s) {
        auto list = s.inputs();
        list[1] = tensor({1, data_type::s32, dims {2, 3}, layout::strided}, s.engine, s.then.data());
        return list;
    }, out);
    run("an input of other strides", nothing, [](Small &s) {
        auto list = s.inputs();
        list[1] = tensor({1, data_type::f32, dims {2, 3}, dims {1, 2}}, s.engine, s.then.data());
        return list;
    }, out);
    run("a result that overlaps an input",
            [](Small &s) { s.then.resize(9); }, in,
            [](Small &s) { return std::vector<tensor> {tensor(s.lt[3], s.engine, s.then.data() + 1)}; });
    run("a stream of another engine", [](Small &s) { s.stream = dnnl::stream(cpu()); }, in, out);

    isolated("fault, a tensor that is NULL", [] {
        Small s;
        const auto compiled = s.compile();
        const auto output = s.outputs();
        const_dnnl_graph_tensor_t inputs[3] = {}, outputs[] = {output[0].get()};
        return std::string(name_of(
                dnnl_graph_compiled_partition_execute(compiled.get(), s.stream.get(), 3, inputs, 1, outputs)));
    });
    isolated("fault, execute what was not compiled", [] {
        Small s;
        dnnl_graph_compiled_partition_t raw = nullptr;
        dnnl::error::wrap_c_api(dnnl_graph_compiled_partition_create(&raw, s.part.get()), "");
        const auto in = s.inputs(), out = s.outputs();
        const_dnnl_graph_tensor_t inputs[] = {in[0].get(), in[1].get(), in[2].get()}, outputs[] = {out[0].get()};
        return std::string(
                name_of(dnnl_graph_compiled_partition_execute(raw, s.stream.get(), 3, inputs, 1, outputs)));
    });
    isolated("fault, dims that overflow", [] {
        Small s;
        const dims huge {INT64_MAX / 2, INT64_MAX / 2};
        const logical_tensor c(0, data_type::boolean, dims {1}, layout::strided),
                a(1, data_type::f32, huge, layout::strided),
                b(2, data_type::f32, dims {1}, layout::strided), d(3, data_type::f32, layout::strided);
        select_partition(c, a, b, d, "numpy").compile({c, a, b}, {d}, s.engine);
        return std::string("success");
    });
    isolated("fault, dims that are negative", [] {
        const logical_tensor t(1, data_type::f32, dims {-3, 2}, layout::strided);
        return "size " + std::to_string(t.get_mem_size());
    });
}

} // namespace client
