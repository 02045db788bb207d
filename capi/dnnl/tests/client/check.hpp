// The tools of every check of the client: names for statuses, one printed line a check, a process of its own for a
// check that may kill it.
#ifndef STERNA_DNNL_CLIENT_CHECK_HPP
#define STERNA_DNNL_CLIENT_CHECK_HPP

#include "oneapi/dnnl/dnnl.hpp"
#include "oneapi/dnnl/dnnl_graph.hpp"

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace client {

using dnnl::graph::compiled_partition;
using dnnl::graph::logical_tensor;
using dnnl::graph::op;
using dnnl::graph::partition;
using dnnl::graph::tensor;
using dims = logical_tensor::dims;
using data_type = logical_tensor::data_type;
using layout = logical_tensor::layout_type;
using property = logical_tensor::property_type;

const char *name_of(dnnl_status_t status);
std::string text(const dims &values);
std::string text(const logical_tensor &tensor);

// Prints `name: value`. The lines of a run are what is compared between two libraries.
void say(const std::string &name, const std::string &value);
void say(const std::string &name, dnnl_status_t status);
void say(const std::string &name, bool value);

// The name of the status that a call ends with, whether it returns it or throws it.
std::string outcome(const std::function<void()> &call);
void attempt(const std::string &name, const std::function<void()> &call);
// Prints what a check answers, or the status that it throws.
void answer(const std::string &name, const std::function<std::string()> &check);

// Runs a check in a process of its own, so that one which kills it costs one line.
void isolated(const std::string &name, const std::function<std::string()> &check);

inline dnnl::engine cpu() { return dnnl::engine(dnnl::engine::kind::cpu, 0); }

// An op select of the ids 0 (condition), 1 and 2 (the two sides) and 3 (result).
op select_op(const logical_tensor &cond, const logical_tensor &then, const logical_tensor &else_,
        const logical_tensor &dst, const std::string &mode);

// The one partition of a graph of one select.
partition select_partition(const logical_tensor &cond, const logical_tensor &then, const logical_tensor &else_,
        const logical_tensor &dst, const std::string &mode);

// A select of bytes of memory, ready to run: {2, 3} f32, condition {3}.
struct Small {
    std::vector<uint8_t> cond {1, 0, 1};
    std::vector<float> then {1, 2, 3, 4, 5, 6}, else_ {-1, -2, -3, -4, -5, -6};
    std::vector<float> dst = std::vector<float>(6, 0.5f);
    logical_tensor lt[4] = {
            {0, data_type::boolean, dims {3}, layout::strided},
            {1, data_type::f32, dims {2, 3}, layout::strided},
            {2, data_type::f32, dims {2, 3}, layout::strided},
            {3, data_type::f32, dims {2, 3}, layout::strided},
    };
    dnnl::engine engine = cpu();
    dnnl::stream stream {engine};
    partition part = select_partition(lt[0], lt[1], lt[2], lt[3], "numpy");

    compiled_partition compile() const { return part.compile({lt[0], lt[1], lt[2]}, {lt[3]}, engine); }
    std::vector<tensor> inputs();
    std::vector<tensor> outputs() { return {tensor(lt[3], engine, dst.data())}; }
    // `right`, or what the result is.
    std::string verdict() const;
};

// The groups of checks; each prints its lines.
void service();
void engines();
void logical_tensors();
void tensors();
void ops();
void graphs();
void partitions();
void compilation();
void layouts();
void bits();
void shapes();
void in_place();
void scalars();
void execution();
void allocators();
void caches();
void nulls();
void numbers();
void faults();
void descriptors();
void memories();
void reorders();
void attributes();
void absent();

} // namespace client

#endif
