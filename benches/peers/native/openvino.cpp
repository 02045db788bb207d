// OpenVINO: a model in ONNX, inferred into memory of ours.
#include "server.hpp"

#include <openvino/openvino.hpp>

namespace {

ov::element::Type type_of(const std::string &dtype) {
    static const std::map<std::string, ov::element::Type> types {{"boolean", ov::element::boolean},
            {"u8", ov::element::u8}, {"f16", ov::element::f16}, {"bf16", ov::element::bf16}, {"f32", ov::element::f32},
            {"s64", ov::element::i64}};
    return types.at(dtype);
}

ov::Tensor tensor_of(const peers::Operand &operand) {
    return {type_of(operand.dtype), ov::Shape(operand.dims.begin(), operand.dims.end()), operand.data.get()};
}

// No arithmetic in another type than that of the data, where there is a choice.
ov::AnyMap config(const peers::Case &c) {
    ov::AnyMap config {ov::inference_num_threads(c.threads), ov::num_streams(1),
            ov::hint::performance_mode(ov::hint::PerformanceMode::LATENCY)};
    for (const peers::Operand &input : c.inputs)
        if (type_of(input.dtype).is_real()) {
            config.insert(ov::hint::inference_precision(type_of(input.dtype)));
            break;
        }
    return config;
}

struct Inference {
    // A request outlives neither its core nor its model.
    std::shared_ptr<ov::Core> core;
    ov::CompiledModel model;
    ov::InferRequest request;

    void operator()() { request.infer(); }
};

Inference prepare(const peers::Case &c) {
    auto core = std::make_shared<ov::Core>();
    auto compiled = core->compile_model(c.option("--dir") + "/graph.onnx", "CPU", config(c));
    auto request = compiled.create_infer_request();
    for (size_t i = 0; i < c.inputs.size(); ++i) request.set_input_tensor(i, tensor_of(c.inputs[i]));
    request.set_output_tensor(tensor_of(c.dst));
    return {core, compiled, request};
}

// The part before the first '-': the rest tells the build.
std::string version() {
    const std::string text = ov::get_openvino_version().buildNumber;
    return text.substr(0, text.find('-'));
}

} // namespace

int main(int argc, char **argv) {
    return peers::serve(argc, argv, [](const peers::Case &c) { return std::pair(version(), prepare(c)); });
}
