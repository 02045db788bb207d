// oneDNN Graph by name: types, kinds and attributes as they stand in graph JSON.
#pragma once

#include "server.hpp"

#include "oneapi/dnnl/dnnl_graph.hpp"

namespace onednn {

using dnnl::graph::logical_tensor;
using Kind = dnnl::graph::op::kind;
using Attribute = dnnl::graph::op::attr;

template <typename T>
T named(const std::map<std::string, T> &names, const std::string &name) {
    const auto found = names.find(name);
    if (found == names.end()) throw std::runtime_error("has no " + name);
    return found->second;
}

#define NAMED(name) {#name, enumeration::name},

inline logical_tensor::data_type type_of(const std::string &dtype) {
    using enumeration = logical_tensor::data_type;
    static const std::map<std::string, enumeration> types {
            NAMED(boolean) NAMED(u8) NAMED(s8) NAMED(f16) NAMED(bf16) NAMED(f32) NAMED(s32) NAMED(s64) NAMED(u4)
            NAMED(s4) NAMED(f8_e5m2) NAMED(f8_e4m3)
    };
    return named(types, dtype);
}

inline Kind kind_of(const std::string &name) {
    using enumeration = Kind;
    static const std::map<std::string, Kind> kinds {
            NAMED(Abs) NAMED(Add) NAMED(Clamp) NAMED(Concat) NAMED(Dequantize) NAMED(Divide) NAMED(Dropout)
            NAMED(DynamicDequantize) NAMED(Exp) NAMED(GELU) NAMED(GenIndex) NAMED(GreaterEqual) NAMED(GroupNorm)
            NAMED(LayerNorm) NAMED(LayerNormBackward) NAMED(Log) NAMED(LogSoftmax) NAMED(MatMul) NAMED(Maximum)
            NAMED(MaxPool) NAMED(Minimum) NAMED(Multiply) NAMED(Quantize) NAMED(ReduceL2) NAMED(ReduceMax)
            NAMED(ReduceSum) NAMED(Reorder) NAMED(RMSNorm) NAMED(Select) NAMED(Sigmoid) NAMED(SoftMax)
            NAMED(StaticReshape) NAMED(StaticTranspose) NAMED(Subtract) NAMED(Tanh) NAMED(TypeCast)
    };
    return named(kinds, name);
}

// Sets an attribute written as `axis=s64:-2`. Numbers of a list stand between bars, those of a bool are 0 and 1.
inline void set_attribute(dnnl::graph::op &op, const std::string &text) {
    using enumeration = Attribute;
    static const std::map<std::string, Attribute> names {
            NAMED(accumulation_mode) NAMED(auto_broadcast) NAMED(auto_pad) NAMED(axes) NAMED(axis)
            NAMED(begin_norm_axis) NAMED(data_format) NAMED(dilations) NAMED(epsilon) NAMED(group_shape) NAMED(groups)
            NAMED(keep_dims) NAMED(keep_stats) NAMED(kernel) NAMED(max) NAMED(min) NAMED(mode) NAMED(order)
            NAMED(pads_begin) NAMED(pads_end) NAMED(qtype) NAMED(rounding_type) NAMED(scales) NAMED(shape)
            NAMED(special_zero) NAMED(strides) NAMED(transpose_a) NAMED(transpose_b) NAMED(use_affine) NAMED(zps)
    };
    const size_t equals = text.find('='), colon = text.find(':');
    const Attribute name = named(names, text.substr(0, equals));
    const std::string type = text.substr(equals + 1, colon - equals - 1), value = text.substr(colon + 1);
    const auto parts = peers::split(value, '|');
    if (type == "s64") op.set_attr<int64_t>(name, std::stoll(value));
    else if (type == "f32") op.set_attr<float>(name, std::stof(value));
    else if (type == "bool") op.set_attr<bool>(name, value == "1");
    else if (type == "s64[]") {
        std::vector<int64_t> numbers;
        for (const std::string &part : parts) numbers.push_back(std::stoll(part));
        op.set_attr<std::vector<int64_t>>(name, numbers);
    } else if (type == "f32[]") {
        std::vector<float> numbers;
        for (const std::string &part : parts) numbers.push_back(std::stof(part));
        op.set_attr<std::vector<float>>(name, numbers);
    } else op.set_attr<std::string>(name, value);
}

#undef NAMED

inline std::string version() {
    const dnnl_version_t *v = dnnl_version();
    const char *runtime = v->cpu_runtime == DNNL_RUNTIME_SYCL ? "SYCL"
            : v->cpu_runtime == DNNL_RUNTIME_OMP              ? "OpenMP"
            : v->cpu_runtime == DNNL_RUNTIME_TBB              ? "TBB"
                                                              : "another runtime";
    return std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch) + " (" + runtime
            + ")";
}

} // namespace onednn
