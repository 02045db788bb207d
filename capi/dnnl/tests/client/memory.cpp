// Memory descriptors and memory objects.
#include "check.hpp"

#include <limits>
#include <memory>

namespace client {

namespace {

using memory = dnnl::memory;
using tag = memory::format_tag;

// Every number that a descriptor answers.
std::string text(const memory::desc &desc) {
    std::string out = "dims " + client::text(desc.get_dims()) + " type "
            + std::to_string(static_cast<int>(desc.get_data_type())) + " kind "
            + std::to_string(static_cast<int>(desc.get_format_kind())) + " offset "
            + std::to_string(desc.get_submemory_offset()) + " size " + std::to_string(desc.get_size());
    if (desc.get_format_kind() == memory::format_kind::blocked)
        out += " strides " + client::text(desc.get_strides()) + " blocks " + std::to_string(desc.get_inner_nblks());
    return out;
}

void show(const std::string &name, const std::function<memory::desc()> &make) {
    answer("md, " + name, [&] { return text(make()); });
}

memory::desc strided(const memory::dims &dims, const memory::dims &strides) {
    return {dims, memory::data_type::f32, strides};
}

void described() {
    static const struct {
        const char *name;
        memory::dims dims;
        tag format;
    } tags[] = {
            {"a", {3}, tag::a},
            {"ab", {2, 3}, tag::ab},
            {"ba", {2, 3}, tag::ba},
            {"nhwc", {2, 3, 4, 5}, tag::nhwc},
            {"any", {2, 3}, tag::any},
            {"undef", {2, 3}, tag::undef},
            {"a dim of 0", {2, 0, 3}, tag::abc},
            {"a dim of 1", {2, 1, 3}, tag::bac},
            {"another number of dims", {2, 3}, tag::abc},
            {"no dims", {}, tag::ab},
            {"a negative dim", {2, -3}, tag::ab},
            {"blocks", {2, 32, 4, 5}, tag::nChw16c},
    };
    for (const auto &row : tags)
        show(std::string("tag ") + row.name,
                [&] { return memory::desc(row.dims, memory::data_type::f32, row.format); });
    // Every tag without blocks, whatever its number of dims.
    const memory::dims sizes = {2, 3, 4, 5, 6, 7, 2, 3, 4, 5, 6, 7};
    for (int code = 2; code < 900; code++)
        for (size_t ndims = 1; ndims <= sizes.size(); ndims++) {
            const memory::dims some(sizes.begin(), sizes.begin() + static_cast<int>(ndims));
            const memory::desc made(some, memory::data_type::f32, static_cast<tag>(code), true);
            if (made && made.get_inner_nblks() == 0)
                say("md, plain tag " + std::to_string(code) + " of " + std::to_string(ndims) + " dims", text(made));
        }
    for (int code : {-1, 875, 876, 5000})
        show("tag number " + std::to_string(code),
                [&] { return memory::desc({2, 3}, memory::data_type::f32, static_cast<tag>(code)); });
    for (int code : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, -1}) {
        const auto type = static_cast<memory::data_type>(code);
        show("type " + std::to_string(code), [&] { return memory::desc({3, 4}, type, tag::ab); });
        show("type " + std::to_string(code) + ", odd", [&] { return memory::desc({3, 5}, type, tag::ab); });
        if (code > 0) say("size of type " + std::to_string(code), std::to_string(memory::data_type_size(type)));
    }
    show("strides, padded", [] { return strided({2, 3}, {8, 1}); });
    show("strides, of 0", [] { return strided({2, 3}, {0, 1}); });
    show("strides, all 0", [] { return strided({2, 3}, {0, 0}); });
    show("strides, overlap", [] { return strided({2, 3}, {2, 1}); });
    show("strides, equal", [] { return strided({2, 3}, {1, 1}); });
    show("strides, along 1", [] { return strided({1, 3}, {1, 1}); });
    show("strides, behind 1", [] { return strided({3, 1}, {1, 1}); });
    show("strides, negative", [] { return strided({2, 3}, {-3, 1}); });
    show("strides, 0 dims", [] { return strided({}, {}); });
    show("strides, empty", [] { return strided({0, 3}, {1, 1}); });
    show("dims beyond the address space",
            [] { return memory::desc({int64_t {1} << 40, int64_t {1} << 40}, memory::data_type::f32, tag::ab); });
    const int64_t later = DNNL_RUNTIME_DIM_VAL;
    show("a dim that comes later", [&] { return memory::desc({later, 3}, memory::data_type::f32, tag::ab); });
    show("strides that come later", [&] { return strided({2, 3}, {later, later}); });
}

void views() {
    const auto rows = strided({4, 6}, {8, 1});
    const memory::desc dense({4, 6}, memory::data_type::f32, tag::ab);
    const memory::desc image({2, 3, 4, 5}, memory::data_type::f32, tag::nhwc);
    const memory::desc any({4, 6}, memory::data_type::f32, tag::any);
    show("part", [&] { return rows.submemory_desc({2, 3}, {1, 2}); });
    show("part of a part", [&] { return rows.submemory_desc({2, 3}, {1, 2}).submemory_desc({1, 1}, {1, 1}); });
    show("part, too far", [&] { return rows.submemory_desc({2, 3}, {3, 2}); });
    show("part, negative", [&] { return rows.submemory_desc({2, 3}, {-1, 2}); });
    show("part of any", [&] { return any.submemory_desc({2, 3}, {1, 2}); });
    show("reshape, join", [&] { return dense.reshape({24}); });
    show("reshape, split", [&] { return rows.reshape({2, 2, 3, 2}); });
    show("reshape, join padded", [&] { return rows.reshape({24}); });
    show("reshape, add 1", [&] { return rows.reshape({1, 4, 1, 6, 1}); });
    show("reshape, remove 1", [&] { return strided({4, 1, 6, 1}, {8, 7, 1, 1}).reshape({4, 6}); });
    show("reshape, another count", [&] { return dense.reshape({4, 5}); });
    show("reshape, across", [&] { return image.reshape({2, 12, 5}); });
    show("reshape, along", [&] { return image.reshape({2, 3, 20}); });
    show("reshape, any", [&] { return any.reshape({24}); });
    show("permute", [&] { return image.permute_axes({1, 2, 3, 0}); });
    show("permute, any", [&] { return any.permute_axes({1, 0}); });
    show("permute, twice the same", [&] { return dense.permute_axes({1, 1}); });
    show("permute, too far", [&] { return dense.permute_axes({0, 2}); });
    show("copy", [&] { return memory::desc(rows); });
    show("blob", [&] { return memory::desc(rows.submemory_desc({2, 3}, {1, 2}).get_blob()); });

    say("md equal, itself", rows == rows);
    say("md equal, the same strides", dense == strided({4, 6}, {6, 1}));
    say("md equal, other strides", dense == rows);
    say("md equal, other strides along 1", strided({1, 6}, {6, 1}) == strided({1, 6}, {9, 1}));
    say("md equal, another type", dense == memory::desc({4, 6}, memory::data_type::s32, tag::ab));
    say("md equal, any", dense == any);
    say("md equal, an offset", dense.submemory_desc({2, 6}, {0, 0}) == dense.submemory_desc({2, 6}, {1, 0}));
}

void nulls_of_descriptors() {
    const dnnl_dims_t dims = {2, 3}, strides = {3, 1};
    const int permutation[] = {1, 0};
    dnnl_memory_desc_t md = nullptr, made = nullptr;
    dnnl_memory_desc_create_with_strides(&md, 2, dims, dnnl_f32, strides);
    size_t size = 0;
    int32_t number = 0;
    say("null md, create with strides", dnnl_memory_desc_create_with_strides(nullptr, 2, dims, dnnl_f32, strides));
    say("null md, create with strides, dims",
            dnnl_memory_desc_create_with_strides(&made, 2, nullptr, dnnl_f32, strides));
    say("null md, create with strides, strides",
            dnnl_memory_desc_create_with_strides(&made, 2, dims, dnnl_f32, nullptr));
    dnnl_memory_desc_destroy(made);
    say("null md, create with tag", dnnl_memory_desc_create_with_tag(nullptr, 2, dims, dnnl_f32, dnnl_ab));
    say("null md, create with tag, dims", dnnl_memory_desc_create_with_tag(&made, 2, nullptr, dnnl_f32, dnnl_ab));
    say("null md, 13 dims", dnnl_memory_desc_create_with_tag(&made, 13, dims, dnnl_f32, dnnl_ab));
    say("null md, -1 dims", dnnl_memory_desc_create_with_tag(&made, -1, dims, dnnl_f32, dnnl_ab));
    isolated("null md, clone", [&] { return std::string(name_of(dnnl_memory_desc_clone(nullptr, md))); });
    isolated("null md, clone, of", [&] { return std::string(name_of(dnnl_memory_desc_clone(&made, nullptr))); });
    say("null md, destroy", dnnl_memory_desc_destroy(nullptr));
    isolated("null md, submemory", [&] { return std::string(name_of(dnnl_memory_desc_create_submemory(nullptr, md, dims, dims))); });
    isolated("null md, submemory, parent", [&] { return std::string(name_of(dnnl_memory_desc_create_submemory(&made, nullptr, dims, dims))); });
    isolated("null md, reshape", [&] { return std::string(name_of(dnnl_memory_desc_reshape(nullptr, md, 2, dims))); });
    isolated("null md, reshape, in", [&] { return std::string(name_of(dnnl_memory_desc_reshape(&made, nullptr, 2, dims))); });
    isolated("null md, permute", [&] { return std::string(name_of(dnnl_memory_desc_permute_axes(nullptr, md, permutation))); });
    isolated("null md, permute, in", [&] { return std::string(name_of(dnnl_memory_desc_permute_axes(&made, nullptr, permutation))); });
    isolated("null md, query", [&] { return std::string(name_of(dnnl_memory_desc_query(nullptr, dnnl_query_ndims_s32, &number))); });
    isolated("null md, query, result", [&] { return std::string(name_of(dnnl_memory_desc_query(md, dnnl_query_ndims_s32, nullptr))); });
    isolated("null md, query, unknown", [&] { return std::string(name_of(dnnl_memory_desc_query(md, dnnl_query_undef, &number))); });
    isolated("null md, size", [&] { return std::to_string(dnnl_memory_desc_get_size(nullptr)); });
    isolated("null md, equal", [&] { return std::to_string(dnnl_memory_desc_equal(md, nullptr)); });
    isolated("null md, both equal", [&] { return std::to_string(dnnl_memory_desc_equal(nullptr, nullptr)); });
    isolated("null md, blob", [&] { return std::string(name_of(dnnl_memory_desc_get_blob(nullptr, &size, nullptr))); });
    isolated("null md, size of blob", [&] { return std::string(name_of(dnnl_memory_desc_get_blob(nullptr, &size, md))); });
    isolated("null md, from blob", [&] { return std::string(name_of(dnnl_memory_desc_create_with_blob(&made, nullptr))); });
    dnnl_memory_desc_destroy(md);
}

} // namespace

void descriptors() {
    described();
    views();
    nulls_of_descriptors();
}

void memories() {
    const dnnl::engine engine = cpu();
    const memory::desc desc({2, 3}, memory::data_type::f32, tag::ab);
    memory own(desc, engine);
    say("memory, engine", own.get_engine() == engine);
    say("memory, descriptor", own.get_desc() == desc);
    isolated("memory, written and read", [&] {
        auto *values = own.map_data<float>();
        for (int i = 0; i < 6; i++) values[i] = static_cast<float>(i);
        own.unmap_data(values);
        values = own.map_data<float>();
        std::string out;
        for (int i = 0; i < 6; i++) out += std::to_string(static_cast<int>(values[i]));
        own.unmap_data(values);
        return out;
    });
    memory none(desc, engine, nullptr);
    say("memory without data, handle", none.get_data_handle() == nullptr);
    attempt("memory of any", [&] { memory({{2, 3}, memory::data_type::f32, tag::any}, engine); });
    attempt("memory of dims that come later",
            [&] { memory({{DNNL_RUNTIME_DIM_VAL, 3}, memory::data_type::f32, tag::ab}, engine); });
    attempt("memory of no elements", [&] { memory({{0, 3}, memory::data_type::f32, tag::ab}, engine); });

    dnnl_memory_t made = nullptr;
    void *handle = nullptr;
    const_dnnl_memory_desc_t described = nullptr;
    dnnl_engine_t of = nullptr;
    const auto md = desc.get();
    say("null memory, create", dnnl_memory_create(nullptr, md, engine.get(), nullptr));
    say("null memory, create, engine", dnnl_memory_create(&made, md, nullptr, nullptr));
    say("null memory, create, handles", dnnl_memory_create_v2(&made, md, engine.get(), 1, nullptr));
    say("null memory, get desc", dnnl_memory_get_memory_desc(nullptr, &described));
    say("null memory, get engine", dnnl_memory_get_engine(nullptr, &of));
    say("null memory, map", dnnl_memory_map_data(nullptr, &handle));
    say("null memory, map, address", dnnl_memory_map_data(own.get(), nullptr));
    say("null memory, get handle", dnnl_memory_get_data_handle(nullptr, &handle));
    say("null memory, set handle", dnnl_memory_set_data_handle(nullptr, handle));
    say("null memory, destroy", dnnl_memory_destroy(nullptr));
    say("memory, handle of index 1", dnnl_memory_get_data_handle_v2(own.get(), &handle, 1));

    isolated("host scalar, value", [] {
        const memory scalar(memory::desc::host_scalar(memory::data_type::s32), 42);
        return std::to_string(scalar.get_host_scalar_value<int32_t>()) + " " + text(scalar.get_desc());
    });
}

} // namespace client
