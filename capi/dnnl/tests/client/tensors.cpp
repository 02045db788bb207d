// Logical tensors, tensors, host scalars.
#include "check.hpp"

namespace client {

namespace {

void size_of(const std::string &name, const logical_tensor &t) {
    answer("size of " + name, [&] {
        const size_t bytes = t.get_mem_size();
        return bytes == SIZE_MAX ? std::string("SIZE_MAX") : std::to_string(bytes);
    });
}

// Every field of a logical tensor, those past its rank too.
std::string fields(const dnnl_graph_logical_tensor_t &t) {
    const auto list = [](const int64_t *values) { return text(dims(values, values + DNNL_MAX_NDIMS)); };
    return "id " + std::to_string(t.id) + " ndims " + std::to_string(t.ndims) + " dims " + list(t.dims) + " type "
            + std::to_string(t.data_type) + " property " + std::to_string(t.property) + " layout "
            + std::to_string(t.layout_type) + " strides " + list(t.layout.strides);
}

void init(const std::string &name, int32_t ndims, dnnl_graph_layout_type_t layout_type) {
    dnnl_graph_logical_tensor_t t {};
    const dnnl_status_t status = dnnl_graph_logical_tensor_init(
            &t, 4, dnnl_f32, ndims, layout_type, dnnl_graph_tensor_property_undef);
    say(name, status == dnnl_success ? fields(t) : std::string(name_of(status)));
}

void init_with_dims(const std::string &name, int32_t ndims, const int64_t *values,
        dnnl_graph_layout_type_t layout_type, dnnl_data_type_t type = dnnl_f32) {
    dnnl_graph_logical_tensor_t t {};
    const dnnl_status_t status = dnnl_graph_logical_tensor_init_with_dims(
            &t, 4, type, ndims, values, layout_type, dnnl_graph_tensor_property_variable);
    say(name, status == dnnl_success ? fields(t) : std::string(name_of(status)));
}

void init_with_strides(const std::string &name, int32_t ndims, const int64_t *values, const int64_t *strides) {
    dnnl_graph_logical_tensor_t t {};
    const dnnl_status_t status = dnnl_graph_logical_tensor_init_with_strides(
            &t, 4, dnnl_bf16, ndims, values, strides, dnnl_graph_tensor_property_constant);
    say(name, status == dnnl_success ? fields(t) : std::string(name_of(status)));
}

} // namespace

void logical_tensors() {
    init("init, rank unknown", DNNL_GRAPH_UNKNOWN_NDIMS, dnnl_graph_layout_type_any);
    init("init, rank 0", 0, dnnl_graph_layout_type_strided);
    init("init, rank 2", 2, dnnl_graph_layout_type_strided);
    init("init, rank 12", 12, dnnl_graph_layout_type_undef);
    init("init, rank 13", 13, dnnl_graph_layout_type_strided);

    const dnnl_dims_t known = {2, 3, 4}, empty = {2, 0, 4}, partly = {2, DNNL_GRAPH_UNKNOWN_DIM, 4};
    init_with_dims("dims, strided", 3, known, dnnl_graph_layout_type_strided);
    init_with_dims("dims, any", 3, known, dnnl_graph_layout_type_any);
    init_with_dims("dims, undef", 3, known, dnnl_graph_layout_type_undef);
    init_with_dims("dims, a dim of 0", 3, empty, dnnl_graph_layout_type_strided);
    init_with_dims("dims, a dim unknown", 3, partly, dnnl_graph_layout_type_strided);
    init_with_dims("dims, rank 0", 0, nullptr, dnnl_graph_layout_type_strided);
    init_with_dims("dims, rank -1", -1, known, dnnl_graph_layout_type_strided);
    init_with_dims("dims, rank 13", 13, known, dnnl_graph_layout_type_strided);

    const dnnl_dims_t rows = {12, 4, 1}, columns = {1, 2, 6}, zeros = {0, 4, 1};
    init_with_strides("strides, by row", 3, known, rows);
    init_with_strides("strides, by column", 3, known, columns);
    init_with_strides("strides, of 0", 3, known, zeros);
    init_with_strides("strides, rank -1", -1, known, rows);
    init_with_strides("strides, rank 13", 13, known, rows);

    size_of("{2, 3, 4} f32", {0, data_type::f32, dims {2, 3, 4}, layout::strided});
    size_of("{2, 3, 4} f16 by column", {0, data_type::f16, dims {2, 3, 4}, dims {1, 2, 6}});
    size_of("{2, 3} f32 with padded rows", {0, data_type::f32, dims {2, 3}, dims {8, 1}});
    size_of("{4, 1} f32 with stride 0", {0, data_type::f32, dims {4, 1}, dims {0, 9}});
    size_of("{0, 3} f32", {0, data_type::f32, dims {0, 3}, layout::strided});
    size_of("a scalar s64", {0, data_type::s64, dims {}, layout::strided});
    size_of("{3} s4", {0, data_type::s4, dims {3}, layout::strided});
    size_of("{2, 3} f32, any", {0, data_type::f32, dims {2, 3}, layout::any});
    size_of("{2, ?} f32", {0, data_type::f32, dims {2, DNNL_GRAPH_UNKNOWN_DIM}, layout::strided});
    size_of("rank unknown", {0, data_type::f32, layout::strided});

    const logical_tensor base(1, data_type::f32, dims {2, 3}, layout::strided);
    const struct {
        const char *name;
        logical_tensor other;
    } pairs[] = {
            {"itself", base},
            {"the same with strides given", {1, data_type::f32, dims {2, 3}, dims {3, 1}}},
            {"another id", {2, data_type::f32, dims {2, 3}, layout::strided}},
            {"another type", {1, data_type::s32, dims {2, 3}, layout::strided}},
            {"another rank", {1, data_type::f32, dims {2, 3, 1}, layout::strided}},
            {"another dim", {1, data_type::f32, dims {2, 4}, layout::strided}},
            {"another layout", {1, data_type::f32, dims {2, 3}, layout::any}},
            {"other strides", {1, data_type::f32, dims {2, 3}, dims {1, 2}}},
            {"another property", {1, data_type::f32, dims {2, 3}, layout::strided, property::constant}},
    };
    for (const auto &pair : pairs) say(std::string("equal to ") + pair.name, base.is_equal(pair.other));
}

void tensors() {
    const dnnl::engine engine = cpu();
    const logical_tensor lt(7, data_type::f32, dims {2, 3}, layout::strided);
    std::vector<float> memory(6), other(6);
    tensor t(lt, engine, memory.data());
    say("tensor, handle", t.get_data_handle() == memory.data());
    t.set_data_handle(other.data());
    say("tensor, handle set", t.get_data_handle() == other.data());
    t.set_data_handle(nullptr);
    say("tensor, handle set to NULL", t.get_data_handle() == nullptr);
    say("tensor, engine", t.get_engine() == engine);
    say("tensor, logical tensor", text(t.get_logical_tensor()));
    say("tensor without memory, handle", tensor(lt, engine, nullptr).get_data_handle() == nullptr);
    const tensor own(lt, engine);
    say("tensor that owns memory, handle", own.get_data_handle() != nullptr);
    say("tensor that owns memory, aligned", reinterpret_cast<uintptr_t>(own.get_data_handle()) % 64 == 0);
    attempt("tensor of layout any that owns memory",
            [&] { tensor({8, data_type::f32, dims {2, 3}, layout::any}, engine); });
    attempt("tensor of unknown dims, no memory",
            [&] { tensor({8, data_type::f32, layout::strided}, engine, nullptr); });
    say("tensor NULL, destroy", dnnl_graph_tensor_destroy(nullptr));
}

void scalars() {
    const struct {
        const char *name;
        logical_tensor lt;
    } rows[] = {
            {"f32", {1, data_type::f32, dims {}, layout::strided, property::host_scalar}},
            {"s32", {1, data_type::s32, dims {}, layout::strided, property::host_scalar}},
            {"s64", {1, data_type::s64, dims {}, layout::strided, property::host_scalar}},
    };
    int64_t value = 5;
    for (const auto &row : rows) {
        attempt(std::string("host scalar ") + row.name, [&] { tensor::make_scalar_tensor(row.lt, &value); });
    }
    dnnl_graph_logical_tensor_t lt;
    const auto scalar = [&](dnnl_data_type_t type, int32_t rank) {
        return dnnl_graph_logical_tensor_init(
                &lt, 1, type, rank, dnnl_graph_layout_type_strided, dnnl_graph_tensor_property_host_scalar);
    };
    say("host scalar of type f16", scalar(dnnl_f16, 0));
    say("host scalar of rank 1", scalar(dnnl_f32, 1));

    const logical_tensor &good = rows[0].lt;
    const tensor t = tensor::make_scalar_tensor(good, &value);
    void *handle = &value;
    dnnl_engine_t engine = nullptr;
    say("host scalar, get handle", dnnl_graph_tensor_get_data_handle(t.get(), &handle));
    say("host scalar, handle is NULL", handle == nullptr);
    say("host scalar, set handle", dnnl_graph_tensor_set_data_handle(t.get(), &value));
    say("host scalar, get engine", dnnl_graph_tensor_get_engine(t.get(), &engine));
    say("host scalar, engine is NULL", engine == nullptr);
    say("host scalar, logical tensor", text(t.get_logical_tensor()));
    attempt("host scalar of NULL", [&] { tensor::make_scalar_tensor(good, nullptr); });
    attempt("host scalar of ALLOCATE", [&] { tensor::make_scalar_tensor(good, DNNL_MEMORY_ALLOCATE); });
    attempt("host scalar of an ordinary tensor", [&] {
        tensor::make_scalar_tensor({1, data_type::f32, dims {}, layout::strided}, &value);
    });
    attempt("ordinary tensor of a host scalar", [&] { tensor(good, cpu(), &value); });

    // A host scalar as a side of a select, and an ordinary tensor of rank 0 in the same place.
    for (const auto kind : {property::host_scalar, property::undef}) {
        const std::string name = kind == property::host_scalar ? "host scalar" : "scalar";
        Small s;
        s.lt[2] = logical_tensor(2, data_type::f32, dims {}, layout::strided, kind);
        float side = -7;
        answer(name + " as a side, execution", [&] {
            s.part = select_partition(s.lt[0], s.lt[1], s.lt[2], s.lt[3], "numpy");
            say(name + " as a side, supported", s.part.is_supported());
            std::vector<tensor> in = s.inputs();
            in[2] = kind == property::host_scalar ? tensor::make_scalar_tensor(s.lt[2], &side)
                                                  : tensor(s.lt[2], s.engine, &side);
            s.compile().execute(s.stream, in, s.outputs());
            s.stream.wait();
            return s.dst == std::vector<float> {1, -7, 3, 4, -7, 6} ? "right" : s.verdict();
        });
    }
}

} // namespace client
