// A graph on whatever library has the interface of oneDNN Graph: oneDNN, or the stand-in for it. Its one argument is a
// folder with `graph.txt` (`onednn_lines.py` writes it) and the bytes of each input, in a file of the name of its id.
//
// It answers as `benches/serve/mod.rs` does: `run SAMPLES` and `write ID PATH`.
#include "onednn.hpp"

#include <algorithm>
#include <set>

namespace {

using dnnl::graph::logical_tensor;
using dnnl::graph::tensor;

// Least seconds of a sample.
constexpr double sample_seconds = 0.002;

peers::Dims numbers(const std::string &text) {
    peers::Dims list;
    if (text != "-")
        for (const std::string &part : peers::split(text, ',')) list.push_back(std::stoll(part));
    return list;
}

std::vector<size_t> ids(const std::string &text) {
    const peers::Dims list = numbers(text);
    return {list.begin(), list.end()};
}

// The tensor of a line `tensor ID TYPE DIMS STRIDES PROPERTY`; `?` are dims of unknown rank.
logical_tensor described(size_t id, const std::string &type, const std::string &dims, const std::string &strides,
        const std::string &property) {
    using Property = logical_tensor::property_type;
    const Property of = property == "constant" ? Property::constant
            : property == "host_scalar"        ? Property::host_scalar
            : property == "variable"           ? Property::variable
                                               : Property::undef;
    constexpr auto strided = logical_tensor::layout_type::strided;
    if (dims == "?") return {id, onednn::type_of(type), DNNL_GRAPH_UNKNOWN_NDIMS, strided, of};
    const peers::Dims shape = numbers(dims);
    const bool is_unknown = strides == "?" || shape.empty();
    if (is_unknown) return {id, onednn::type_of(type), shape, strided, of};
    return {id, onednn::type_of(type), shape, numbers(strides), of};
}

struct Step {
    dnnl::graph::compiled_partition partition;
    std::vector<tensor> inputs, outputs;
};

struct Whole {
    dnnl::engine engine {dnnl::engine::kind::cpu, 0};
    dnnl::stream stream {engine};
    std::map<size_t, logical_tensor> descs;
    std::map<size_t, peers::Memory> memory;
    std::vector<Step> steps;

    explicit Whole(const std::string &folder) {
        std::ifstream file(folder + "/graph.txt");
        dnnl::graph::graph graph(dnnl::engine::kind::cpu);
        std::string word;
        size_t count = 0;
        while (file >> word) {
            if (word == "fpmath") {
                std::string mode;
                bool is_on_integers = false;
                file >> mode >> is_on_integers;
                graph.set_fpmath_mode(mode == "f16" ? dnnl::graph::fpmath_mode::f16
                                : mode == "bf16"    ? dnnl::graph::fpmath_mode::bf16
                                                    : dnnl::graph::fpmath_mode::strict,
                        is_on_integers);
            } else if (word == "tensor") {
                size_t id = 0;
                std::string type, dims, strides, property;
                file >> id >> type >> dims >> strides >> property;
                descs.insert({id, described(id, type, dims, strides, property)});
            } else {
                std::string kind, attributes, inputs, outputs;
                file >> kind >> attributes >> inputs >> outputs;
                dnnl::graph::op op(count, onednn::kind_of(kind), kind + std::to_string(count));
                for (size_t id : ids(inputs)) op.add_input(descs.at(id));
                for (size_t id : ids(outputs)) op.add_output(descs.at(id));
                if (attributes != "-")
                    for (const std::string &text : peers::split(attributes, ';')) onednn::set_attribute(op, text);
                graph.add_op(op);
                ++count;
            }
        }
        graph.finalize();
        prepare(graph.get_partitions(), folder);
    }

    // Compiles the partitions in an order in which each finds its inputs.
    void prepare(std::vector<dnnl::graph::partition> rest, const std::string &folder) {
        std::set<size_t> made;
        for (const auto &partition : rest)
            for (const logical_tensor &port : partition.get_output_ports()) made.insert(port.get_id());
        std::map<size_t, tensor> tensors;
        while (!rest.empty()) {
            const size_t before = rest.size();
            for (auto it = rest.begin(); it != rest.end();) {
                const auto ports = it->get_input_ports();
                const bool is_ready = std::all_of(ports.begin(), ports.end(), [&](const logical_tensor &port) {
                    return tensors.count(port.get_id()) || !made.count(port.get_id());
                });
                if (!is_ready) {
                    ++it;
                    continue;
                }
                add(*it, tensors, folder);
                it = rest.erase(it);
            }
            if (rest.size() == before) throw std::runtime_error("partitions that wait for each other");
        }
    }

    void add(const dnnl::graph::partition &partition, std::map<size_t, tensor> &tensors, const std::string &folder) {
        if (!partition.is_supported()) throw std::runtime_error("an unsupported partition");
        const auto known = [&](const std::vector<logical_tensor> &ports) {
            std::vector<logical_tensor> list;
            for (const logical_tensor &port : ports) list.push_back(descs.at(port.get_id()));
            return list;
        };
        const auto inputs = known(partition.get_input_ports()), outputs = known(partition.get_output_ports());
        Step step {partition.compile(inputs, outputs, engine), {}, {}};
        const auto found = [&](const logical_tensor &port, bool is_input) {
            const size_t id = port.get_id();
            if (!tensors.count(id)) {
                if (!is_input) descs.at(id) = step.partition.query_logical_tensor(id);
                const size_t size = std::max(descs.at(id).get_mem_size(), size_t {16});
                const bool is_scalar
                        = descs.at(id).get_property_type() == logical_tensor::property_type::host_scalar;
                memory.insert({id, peers::allocate(size)});
                void *data = memory.at(id).get();
                std::memset(data, 0, size);
                std::ifstream file(folder + "/" + std::to_string(id), std::ios::binary);
                if (is_input && file) file.read(static_cast<char *>(data), static_cast<std::streamsize>(size));
                tensors.insert({id,
                        is_scalar ? tensor::make_scalar_tensor(descs.at(id), data)
                                  : tensor(descs.at(id), engine, data)});
            }
            return tensors.at(id);
        };
        for (const logical_tensor &port : inputs) step.inputs.push_back(found(port, true));
        for (const logical_tensor &port : outputs) step.outputs.push_back(found(port, false));
        steps.push_back(std::move(step));
    }

    void execute() {
        for (Step &step : steps) step.partition.execute(stream, step.inputs, step.outputs);
        stream.wait();
    }

    // Nanoseconds of an execution, the mean over so many.
    double nanoseconds(size_t runs) {
        const auto start = std::chrono::steady_clock::now();
        for (size_t run = 0; run < runs; ++run) execute();
        const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
        return elapsed.count() / static_cast<double>(runs);
    }

    void write(size_t id, const std::string &path) {
        std::ofstream file(path, std::ios::binary);
        const auto size = static_cast<std::streamsize>(descs.at(id).get_mem_size());
        file.write(reinterpret_cast<const char *>(memory.at(id).get()), size);
    }
};

} // namespace

int main(int argc, char **argv) {
    try {
        if (argc != 2) throw std::runtime_error("takes a folder");
        Whole whole(argv[1]);
        double once = whole.nanoseconds(1);
        // The first is slower, which matters where many are a sample.
        if (once < sample_seconds * 1e9) once = whole.nanoseconds(1);
        const auto runs = static_cast<size_t>(std::max(1.0, sample_seconds * 1e9 / std::max(once, 1.0)));
        std::cout << "ready " << onednn::version() << ", " << whole.steps.size() << " partitions" << std::endl;
        for (std::string line; std::getline(std::cin, line);) {
            std::istringstream words(line);
            std::string command, path;
            size_t number = 0;
            words >> command >> number;
            if (command == "run") {
                std::cout << "times";
                for (size_t sample = 0; sample < number; ++sample) std::cout << ' ' << whole.nanoseconds(runs);
                std::cout << std::endl;
            } else if (command == "write" && words >> path) {
                whole.write(number, path);
                std::cout << "written" << std::endl;
            } else {
                break;
            }
        }
    } catch (const std::exception &error) {
        std::cout << "refused " << peers::one_line(error.what()) << std::endl;
    }
    return 0;
}
