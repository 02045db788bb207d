// oneDNN Graph: one Select as one partition.
#include "server.hpp"

#include "oneapi/dnnl/dnnl_graph.hpp"

namespace {

using dnnl::graph::logical_tensor;

logical_tensor::data_type type_of(const std::string &dtype) {
    using type = logical_tensor::data_type;
    static const std::map<std::string, type> types {
            {"u8", type::u8}, {"f16", type::f16}, {"bf16", type::bf16}, {"f32", type::f32},
            {"s64", type::s64}};
    return types.at(dtype);
}

struct Select {
    dnnl::graph::compiled_partition partition;
    dnnl::stream stream;
    std::vector<dnnl::graph::tensor> inputs, outputs;

    void operator()() {
        partition.execute(stream, inputs, outputs);
        stream.wait();
    }
};

Select prepare(const peers::Case &c) {
    if (!c.is_select()) throw std::runtime_error("runs selects here, no graphs");
    const auto layout = logical_tensor::layout_type::strided;
    const auto type = type_of(c.dst.dtype);
    const auto &in = c.inputs;
    const logical_tensor cond(0, logical_tensor::data_type::boolean, in[0].dims, layout),
            then(1, type, in[1].dims, layout), else_(2, type, in[2].dims, layout), dst(3, type, c.dst.dims, layout);
    dnnl::graph::op select(0, dnnl::graph::op::kind::Select, {cond, then, else_}, {dst}, "select");
    select.set_attr<std::string>(dnnl::graph::op::attr::auto_broadcast, "numpy");
    dnnl::graph::graph graph(dnnl::engine::kind::cpu);
    graph.add_op(select);
    graph.finalize();
    const auto partitions = graph.get_partitions();
    if (partitions.size() != 1 || !partitions[0].is_supported()) throw std::runtime_error("an unsupported partition");
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    return {partitions[0].compile({cond, then, else_}, {dst}, engine), dnnl::stream(engine),
            {{cond, engine, in[0].data.get()}, {then, engine, in[1].data.get()}, {else_, engine, in[2].data.get()}},
            {{dst, engine, c.dst.data.get()}}};
}

std::string version() {
    const dnnl_version_t *v = dnnl_version();
    const char *runtime = v->cpu_runtime == DNNL_RUNTIME_SYCL ? "SYCL"
            : v->cpu_runtime == DNNL_RUNTIME_OMP              ? "OpenMP"
            : v->cpu_runtime == DNNL_RUNTIME_TBB              ? "TBB"
                                                              : "another runtime";
    return std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch) + " (" + runtime
            + ")";
}

} // namespace

int main(int argc, char **argv) {
    return peers::serve(argc, argv, [](const peers::Case &c) { return std::pair(version(), prepare(c)); });
}
