// oneDNN Graph: the partitions that it makes of a graph, one after the other, with memory between them.
#include "onednn.hpp"

namespace {

using dnnl::graph::logical_tensor;
using onednn::kind_of;
using onednn::set_attribute;
using onednn::type_of;
constexpr auto strided = logical_tensor::layout_type::strided;

struct Step {
    dnnl::graph::compiled_partition partition;
    std::vector<dnnl::graph::tensor> inputs, outputs;
};

struct Chain {
    dnnl::stream stream;
    std::vector<Step> steps;
    std::shared_ptr<std::vector<peers::Memory>> scratch;

    void operator()() {
        for (Step &step : steps) step.partition.execute(stream, step.inputs, step.outputs);
        stream.wait();
    }
};

// A tensor as far as it is known, and where it lies.
struct Place {
    logical_tensor desc;
    void *data;
};

// A scalar has one dim of 1.
peers::Dims dims_of(const peers::Dims &dims) {
    return dims.empty() ? peers::Dims {1} : dims;
}

Chain prepare(const peers::Case &c) {
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    Chain chain {dnnl::stream(engine), {}, std::make_shared<std::vector<peers::Memory>>()};
    const auto block = [&](size_t size) {
        chain.scratch->push_back(peers::allocate(size));
        return static_cast<void *>(chain.scratch->back().get());
    };
    std::map<size_t, Place> places;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
        const logical_tensor desc(i, type_of(c.inputs[i].dtype), dims_of(c.inputs[i].dims), strided);
        places.insert({i, {desc, c.inputs[i].data.get()}});
    }
    dnnl::graph::graph graph(dnnl::engine::kind::cpu);
    std::ifstream file(c.option("--dir") + "/graph.txt");
    size_t last = 0, count = 0;
    for (std::string kind, attributes, inputs, output; file >> kind >> attributes >> inputs >> output; ++count) {
        last = std::stoull(output);
        const auto type = type_of(output.substr(output.find(':') + 1));
        // A constant is one more input.
        if (kind == "Fill") {
            const std::string value = attributes.substr(attributes.rfind(':') + 1);
            void *data = block(sizeof(float));
            const float number = std::stof(value);
            // A bf16 is the upper half of an f32, if the lower is 0, as in the constants of the graphs.
            if (type == logical_tensor::data_type::bf16)
                std::memcpy(data, reinterpret_cast<const char *>(&number) + 2, 2);
            else if (type == logical_tensor::data_type::f32)
                std::memcpy(data, &number, sizeof(number));
            else
                throw std::runtime_error("has constants of f32 and bf16 only");
            places.insert({last, {logical_tensor(last, type, peers::Dims {1}, strided), data}});
            continue;
        }
        dnnl::graph::op op(count, kind_of(kind), kind + std::to_string(count));
        for (const std::string &id : peers::split(inputs, ',')) op.add_input(places.at(std::stoull(id)).desc);
        if (attributes != "-")
            for (const std::string &text : peers::split(attributes, ',')) set_attribute(op, text);
        const logical_tensor desc(last, type, strided);
        op.add_output(desc);
        graph.add_op(op);
        places.insert({last, {desc, nullptr}});
    }
    graph.finalize();
    places.at(last) = {logical_tensor(last, type_of(c.dst.dtype), dims_of(c.dst.dims), strided), c.dst.data.get()};
    for (const auto &partition : graph.get_partitions()) {
        if (!partition.is_supported()) throw std::runtime_error("an unsupported partition");
        const auto descs = [&](const std::vector<logical_tensor> &ports) {
            std::vector<logical_tensor> known;
            for (const logical_tensor &port : ports) known.push_back(places.at(port.get_id()).desc);
            return known;
        };
        const auto inputs = descs(partition.get_input_ports()), outputs = descs(partition.get_output_ports());
        Step step {partition.compile(inputs, outputs, engine), {}, {}};
        const auto tensor = [&](const logical_tensor &port) {
            Place &place = places.at(port.get_id());
            if (!place.data) {
                place.desc = step.partition.query_logical_tensor(port.get_id());
                place.data = block(place.desc.get_mem_size());
            }
            return dnnl::graph::tensor(place.desc, engine, place.data);
        };
        for (const logical_tensor &port : inputs) step.inputs.push_back(tensor(port));
        for (const logical_tensor &port : outputs) step.outputs.push_back(tensor(port));
        chain.steps.push_back(std::move(step));
    }
    return chain;
}

} // namespace

int main(int argc, char **argv) {
    return peers::serve(argc, argv, [](const peers::Case &c) { return std::pair(onednn::version(), prepare(c)); });
}
