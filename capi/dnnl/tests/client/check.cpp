#include "check.hpp"

#include <cstdio>
#include <sys/wait.h>
#include <unistd.h>

namespace client {

const char *name_of(dnnl_status_t status) {
    switch (status) {
        case dnnl_success: return "success";
        case dnnl_out_of_memory: return "out_of_memory";
        case dnnl_invalid_arguments: return "invalid_arguments";
        case dnnl_unimplemented: return "unimplemented";
        case dnnl_last_impl_reached: return "last_impl_reached";
        case dnnl_runtime_error: return "runtime_error";
        case dnnl_not_required: return "not_required";
        case dnnl_invalid_graph: return "invalid_graph";
        case dnnl_invalid_graph_op: return "invalid_graph_op";
        case dnnl_invalid_shape: return "invalid_shape";
        case dnnl_invalid_data_type: return "invalid_data_type";
    }
    return "a status that does not exist";
}

std::string text(const dims &values) {
    std::string out = "{";
    for (auto value : values) {
        if (out.size() > 1) out += ", ";
        out += value == DNNL_GRAPH_UNKNOWN_DIM ? "?" : std::to_string(value);
    }
    return out + "}";
}

std::string text(const logical_tensor &tensor) {
    static const char *const layouts[] = {"undef", "any", "strided", "opaque"};
    static const char *const properties[] = {"undef", "variable", "constant", "host_scalar"};
    const auto rank = [&] {
        try {
            return text(tensor.get_dims());
        } catch (const dnnl::error &) { return std::string("?"); }
    }();
    std::string out = "id " + std::to_string(tensor.get_id()) + " type "
            + std::to_string(static_cast<int>(tensor.get_data_type())) + " dims " + rank + " layout "
            + layouts[static_cast<int>(tensor.get_layout_type())] + " property "
            + properties[static_cast<int>(tensor.get_property_type())];
    if (rank != "?" && tensor.get_layout_type() == layout::strided) out += " strides " + text(tensor.get_strides());
    return out;
}

void say(const std::string &name, const std::string &value) {
    std::printf("%s: %s\n", name.c_str(), value.c_str());
    std::fflush(stdout);
}

void say(const std::string &name, dnnl_status_t status) { say(name, std::string(name_of(status))); }
void say(const std::string &name, bool value) { say(name, std::string(value ? "yes" : "no")); }

std::string outcome(const std::function<void()> &call) {
    try {
        call();
        return "success";
    } catch (const dnnl::error &e) {
        return name_of(e.status);
    } catch (...) { return "an exception that is not oneDNN's"; }
}

void attempt(const std::string &name, const std::function<void()> &call) { say(name, outcome(call)); }

void answer(const std::string &name, const std::function<std::string()> &check) {
    std::string value;
    const std::string end = outcome([&] { value = check(); });
    say(name, end == "success" ? value : end);
}

void isolated(const std::string &name, const std::function<std::string()> &check) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        // A library that hangs ends as one that kills.
        alarm(120);
        answer(name, check);
        _exit(0);
    }
    int end = 0;
    if (child < 0 || waitpid(child, &end, 0) != child || !WIFEXITED(end) || WEXITSTATUS(end) != 0)
        say(name, std::string("the process died"));
}

op select_op(const logical_tensor &cond, const logical_tensor &then, const logical_tensor &else_,
        const logical_tensor &dst, const std::string &mode) {
    op select(0, op::kind::Select, {cond, then, else_}, {dst}, "select");
    // The mode `default` is the attribute's own default.
    if (mode != "default") select.set_attr<std::string>(op::attr::auto_broadcast, mode);
    return select;
}

partition select_partition(const logical_tensor &cond, const logical_tensor &then, const logical_tensor &else_,
        const logical_tensor &dst, const std::string &mode) {
    dnnl::graph::graph graph(dnnl::engine::kind::cpu);
    graph.add_op(select_op(cond, then, else_, dst, mode));
    graph.finalize();
    const auto partitions = graph.get_partitions();
    if (partitions.size() != 1) dnnl::error::wrap_c_api(dnnl_runtime_error, "a select is one partition");
    return partitions[0];
}

std::vector<tensor> Small::inputs() {
    return {tensor(lt[0], engine, cond.data()), tensor(lt[1], engine, then.data()),
            tensor(lt[2], engine, else_.data())};
}

std::string Small::verdict() const {
    if (dst == std::vector<float> {1, -2, 3, 4, -5, 6}) return "right";
    std::string out = "wrong";
    for (auto value : dst) out += " " + std::to_string(value);
    return out;
}

} // namespace client
