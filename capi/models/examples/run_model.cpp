// Runs a model on inputs of zeros, and prints the shape of each output: `run_model model.onnx`. An open dim is 1.
#include <sterna_models.hpp>

#include <cstdint>
#include <iostream>
#include <vector>

int main(int count, char **arguments) try {
    if (count != 2) {
        std::cerr << "usage: run_model MODEL\n";
        return 2;
    }
    const sterna::session session(sterna::load(arguments[1]), sterna::engine());

    std::vector<std::vector<std::uint64_t>> zeros;
    std::vector<sterna::named_operand> inputs;
    for (const auto &[name, tensor] : session.inputs()) {
        std::vector<std::int64_t> dims(tensor.dims().begin(), tensor.dims().end());
        std::size_t elements = 1;
        for (auto &dim : dims) elements *= static_cast<std::size_t>(dim = dim == sterna::unknown_dim ? 1 : dim);
        zeros.emplace_back(elements); // Eight bytes are enough for an element of any type.
        inputs.push_back({name, {tensor.type(), zeros.back().data(), dims}});
    }
    const auto outputs = session.run(inputs);
    for (std::size_t i = 0; i < outputs.size(); i++) {
        const auto desc = outputs[i].desc();
        std::cout << outputs.name(i) << ": " << sterna::name(desc.type());
        const char *between = " ";
        for (const auto dim : desc.dims()) {
            std::cout << between << dim;
            between = "x";
        }
        std::cout << '\n';
    }
} catch (const sterna::error &error) {
    std::cerr << sterna::name(error.status()) << ": " << error.what() << '\n';
    return 1;
}
