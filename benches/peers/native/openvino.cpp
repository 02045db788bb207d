// OpenVINO: a model of one Select, inferred into memory of ours.
#include "server.hpp"

#include <openvino/openvino.hpp>
#include <openvino/opsets/opset1.hpp>

namespace {

ov::element::Type type_of(const std::string &dtype) {
    static const std::map<std::string, ov::element::Type> types {{"u8", ov::element::u8}, {"f16", ov::element::f16},
            {"bf16", ov::element::bf16}, {"f32", ov::element::f32}, {"s64", ov::element::i64}};
    return types.at(dtype);
}

ov::Shape shape_of(const peers::Dims &dims) {
    return ov::Shape(dims.begin(), dims.end());
}

// No arithmetic in another type than that of the data, where there is a choice.
ov::AnyMap config(const peers::Case &c, ov::element::Type type) {
    ov::AnyMap config {ov::inference_num_threads(c.threads), ov::num_streams(1),
            ov::hint::performance_mode(ov::hint::PerformanceMode::LATENCY)};
    if (type.is_real()) config.insert(ov::hint::inference_precision(type));
    return config;
}

struct Select {
    // A request outlives neither its core nor its model.
    std::shared_ptr<ov::Core> core;
    ov::CompiledModel model;
    ov::InferRequest request;

    void operator()() { request.infer(); }
};

Select prepare(const peers::Case &c) {
    const ov::element::Type type = type_of(c.dtype);
    using ov::opset1::Parameter;
    const auto cond = std::make_shared<Parameter>(ov::element::boolean, shape_of(c.cond));
    const auto then = std::make_shared<Parameter>(type, shape_of(c.then));
    const auto else_ = std::make_shared<Parameter>(type, shape_of(c.else_));
    const auto select = std::make_shared<ov::opset1::Select>(cond, then, else_);
    const auto model = std::make_shared<ov::Model>(ov::OutputVector {select}, ov::ParameterVector {cond, then, else_});
    auto core = std::make_shared<ov::Core>();
    auto compiled = core->compile_model(model, "CPU", config(c, type));
    auto request = compiled.create_infer_request();
    request.set_input_tensor(0, ov::Tensor(ov::element::boolean, shape_of(c.cond), c.cond_data.get()));
    request.set_input_tensor(1, ov::Tensor(type, shape_of(c.then), c.then_data.get()));
    request.set_input_tensor(2, ov::Tensor(type, shape_of(c.else_), c.else_data.get()));
    request.set_output_tensor(ov::Tensor(type, shape_of(c.dst), c.dst_data.get()));
    return {core, compiled, request};
}

// What stands before the first '-': the rest tells the build.
std::string version() {
    const std::string text = ov::get_openvino_version().buildNumber;
    return text.substr(0, text.find('-'));
}

} // namespace

int main(int argc, char **argv) {
    return peers::serve(argc, argv, [](const peers::Case &c) { return std::pair(version(), prepare(c)); });
}
