// A program as a framework writes it: numbers in f32 become memory objects, reorders bring them into the type of a graph,
// its partitions run on the memory, a reorder brings the result back, and a plain loop says whether it is right.
#include "oneapi/dnnl/dnnl.hpp"
#include "oneapi/dnnl/dnnl_debug.h"
#include "oneapi/dnnl/dnnl_graph.hpp"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#if DNNL_CPU_RUNTIME != DNNL_RUNTIME_SEQ || DNNL_GPU_RUNTIME != DNNL_RUNTIME_NONE
#error "the configuration is not that of the stand-in"
#endif

namespace {

using dnnl::memory;
using dnnl::graph::logical_tensor;
using dnnl::graph::op;
using data_type = logical_tensor::data_type;
using dims = logical_tensor::dims;
using numbers = std::vector<float>;

// Numbers between -1 and 1 that look random, always the same.
numbers some(int64_t count, unsigned seed) {
    numbers out(static_cast<size_t>(count));
    for (auto &number : out) {
        seed = seed * 1664525u + 1013904223u;
        number = static_cast<float>(seed >> 8) / 8388608.0f - 1.0f;
    }
    return out;
}

int64_t product(const dims &shape) {
    int64_t out = 1;
    for (auto dim : shape) out *= dim;
    return out;
}

struct Session {
    dnnl::engine engine {dnnl::engine::kind::cpu, 0};
    dnnl::stream stream {engine};
    dnnl::graph::graph graph {dnnl::engine::kind::cpu};
    std::map<size_t, memory> memories;
    std::map<size_t, logical_tensor> tensors;
    size_t ids = 0;

    logical_tensor tensor(const dims &shape, data_type type) {
        return {ids++, type, shape, logical_tensor::layout_type::strided};
    }

    static memory::desc described(const logical_tensor &tensor) {
        return {tensor.get_dims(), static_cast<memory::data_type>(tensor.get_data_type()), tensor.get_strides()};
    }

    // An input of the graph, whose numbers a reorder writes in its type.
    logical_tensor input(const dims &shape, data_type type, const numbers &values) {
        const auto made = tensor(shape, type);
        memory::desc f32(shape, memory::data_type::f32, described(tensor(shape, data_type::f32)).get_strides());
        memory plain(f32, engine), own(described(made), engine);
        auto *data = plain.map_data<float>();
        std::memcpy(data, values.data(), values.size() * sizeof(float));
        plain.unmap_data(data);
        dnnl::reorder(plain, own).execute(stream, plain, own);
        memories.emplace(made.get_id(), own);
        return made;
    }

    logical_tensor add(op::kind kind, const std::vector<logical_tensor> &inputs, const logical_tensor &output,
            const std::map<op::attr, std::string> &words = {}, const std::map<op::attr, int64_t> &counts = {},
            bool transposes_b = false) {
        op made(ids++, kind, inputs, {output}, "op");
        for (const auto &word : words) made.set_attr<std::string>(word.first, word.second);
        for (const auto &count : counts) made.set_attr<int64_t>(count.first, count.second);
        if (transposes_b) made.set_attr<bool>(op::attr::transpose_b, true);
        graph.add_op(made);
        return output;
    }

    // Runs the graph, whose partitions come in an order in which they can run.
    size_t run() {
        graph.finalize();
        const auto partitions = graph.get_partitions();
        for (const auto &partition : partitions) {
            if (!partition.is_supported()) throw std::runtime_error("a partition is not supported");
            const auto inputs = partition.get_input_ports(), outputs = partition.get_output_ports();
            const auto compiled = partition.compile(inputs, outputs, engine);
            std::vector<dnnl::graph::tensor> from, to;
            for (const auto &port : inputs)
                from.emplace_back(port, engine, memories.at(port.get_id()).get_data_handle());
            for (const auto &port : outputs) {
                const auto made = compiled.query_logical_tensor(port.get_id());
                memories[port.get_id()] = memory(described(made), engine);
                to.emplace_back(made, engine, memories.at(port.get_id()).get_data_handle());
            }
            compiled.execute(stream, from, to);
        }
        stream.wait();
        return partitions.size();
    }

    numbers result(const logical_tensor &of) {
        auto &own = memories.at(of.get_id());
        const auto shape = of.get_dims();
        memory plain({shape, memory::data_type::f32, described(tensor(shape, data_type::f32)).get_strides()}, engine);
        dnnl::reorder(own, plain).execute(stream, own, plain);
        stream.wait();
        const auto *data = static_cast<const float *>(plain.get_data_handle());
        return {data, data + product(shape)};
    }
};

int faults = 0;

void check(const std::string &name, const numbers &made, const numbers &expected, float tolerance) {
    float worst = made.size() == expected.size() ? 0 : std::numeric_limits<float>::infinity();
    for (size_t i = 0; i < expected.size() && i < made.size(); i++) {
        const float distance = std::fabs(made[i] - expected[i]);
        if (!(distance <= worst)) worst = distance;
    }
    const bool is_right = worst <= tolerance;
    std::printf("%s: %s\n", name.c_str(), is_right ? "right" : ("off by " + std::to_string(worst)).c_str());
    if (!is_right) faults++;
}

float tolerance(data_type type) { return type == data_type::f32 ? 1e-4f : type == data_type::f16 ? 5e-3f : 4e-2f; }

// Attention of `heads` heads in groups that share keys and values; dims are {batch, groups, heads of a group, rows, size}.
void attention(const std::string &name, data_type type, int64_t groups, int64_t shared) {
    const int64_t batch = 2, queries = 5, keys = 7, size = 16;
    const bool is_plain = shared == 1;
    const auto shape = [&](int64_t heads, int64_t rows, int64_t columns) {
        return is_plain ? dims {batch, groups, rows, columns} : dims {batch, groups, heads, rows, columns};
    };
    const numbers q = some(batch * groups * shared * queries * size, 1), k = some(batch * groups * keys * size, 2),
                  v = some(batch * groups * keys * size, 3), scale = {4.0f};
    numbers mask(static_cast<size_t>(batch * queries * keys));
    for (size_t i = 0; i < mask.size(); i++)
        mask[i] = static_cast<int64_t>(i) % keys < keys * 3 / 4 ? 0.0f : -std::numeric_limits<float>::infinity();

    Session s;
    const dims scores = shape(shared, queries, keys);
    dims masked = scores;
    for (size_t axis = 1; axis + 2 < masked.size(); axis++) masked[axis] = 1;
    const auto query = s.input(shape(shared, queries, size), type, q), key = s.input(shape(1, keys, size), type, k),
               value = s.input(shape(1, keys, size), type, v), divisor = s.input({1}, type, scale),
               bias = s.input(masked, type, mask);
    const auto f32 = data_type::f32;
    auto score = s.add(op::kind::MatMul, {query, key}, s.tensor(scores, f32), {}, {}, true);
    score = s.add(op::kind::Divide, {score, divisor}, s.tensor(scores, f32));
    score = s.add(op::kind::Add, {score, bias}, s.tensor(scores, f32));
    const auto weights = s.add(op::kind::SoftMax, {score}, s.tensor(scores, type),
            {{op::attr::mode, "inf_as_zero"}}, {{op::attr::axis, -1}});
    const auto out = s.add(op::kind::MatMul, {weights, value}, s.tensor(shape(shared, queries, size), type));
    const size_t partitions = s.run();

    numbers expected(q.size());
    for (int64_t head = 0; head < batch * groups * shared; head++)
        for (int64_t row = 0; row < queries; row++) {
            const int64_t of = head / shared * keys, at = (head * queries + row) * size;
            numbers weight(static_cast<size_t>(keys));
            float sum = 0;
            for (int64_t key_row = 0; key_row < keys * 3 / 4; key_row++) {
                float dot = 0;
                for (int64_t i = 0; i < size; i++) dot += q[at + i] * k[(of + key_row) * size + i];
                sum += weight[key_row] = std::exp(dot / scale[0]);
            }
            for (int64_t key_row = 0; key_row < keys; key_row++)
                for (int64_t i = 0; i < size; i++)
                    expected[at + i] += weight[key_row] / sum * v[(of + key_row) * size + i];
        }
    check(name + " " + dnnl_dt2str(static_cast<dnnl_data_type_t>(type)) + ", partitions " + std::to_string(partitions),
            s.result(out), expected, tolerance(type));
}

// (x · up) times SiLU of (x · gate), by another matrix.
void gated_mlp(data_type type) {
    const int64_t rows = 3, size = 32, hidden = 48;
    const numbers x = some(rows * size, 4), gate = some(size * hidden, 5), up = some(size * hidden, 6),
                  down = some(hidden * size, 7);
    Session s;
    const dims wide = {rows, hidden};
    const auto src = s.input({rows, size}, type, x);
    const auto a = s.add(op::kind::MatMul, {src, s.input({size, hidden}, type, gate)}, s.tensor(wide, type));
    const auto b = s.add(op::kind::MatMul, {src, s.input({size, hidden}, type, up)}, s.tensor(wide, type));
    const auto sigmoid = s.add(op::kind::Sigmoid, {a}, s.tensor(wide, type));
    const auto silu = s.add(op::kind::Multiply, {a, sigmoid}, s.tensor(wide, type));
    const auto both = s.add(op::kind::Multiply, {silu, b}, s.tensor(wide, type));
    const auto out = s.add(op::kind::MatMul, {both, s.input({hidden, size}, type, down)}, s.tensor({rows, size}, type));
    s.run();

    numbers expected(x.size());
    for (int64_t row = 0; row < rows; row++)
        for (int64_t j = 0; j < hidden; j++) {
            float g = 0, u = 0;
            for (int64_t i = 0; i < size; i++) {
                g += x[row * size + i] * gate[i * hidden + j];
                u += x[row * size + i] * up[i * hidden + j];
            }
            const float product = g / (1 + std::exp(-g)) * u;
            for (int64_t i = 0; i < size; i++) expected[row * size + i] += product * down[j * size + i];
        }
    // Sums of 48 products of numbers of about 10.
    check(std::string("gated mlp ") + dnnl_dt2str(static_cast<dnnl_data_type_t>(type)), s.result(out), expected,
            60 * tolerance(type));
}

// The gradients of attention by the weights of a step forward, as training computes them.
void training() {
    const int64_t heads = 2, rows = 4, keys = 6, size = 8;
    const dims q_shape = {1, heads, rows, size}, k_shape = {1, heads, keys, size}, scores = {1, heads, rows, keys};
    const numbers q = some(heads * rows * size, 8), k = some(heads * keys * size, 9), v = some(heads * keys * size, 10),
                  g = some(heads * rows * size, 11);
    const auto f32 = data_type::f32;
    Session s;
    const auto query = s.input(q_shape, f32, q), key = s.input(k_shape, f32, k), value = s.input(k_shape, f32, v),
               gradient = s.input(q_shape, f32, g);
    const auto score = s.add(op::kind::MatMul, {query, key}, s.tensor(scores, f32), {}, {}, true);
    const auto weights = s.add(op::kind::SoftMax, {score}, s.tensor(scores, f32), {}, {{op::attr::axis, -1}});
    const auto of_weights = s.add(op::kind::MatMul, {gradient, value}, s.tensor(scores, f32), {}, {}, true);
    const auto of_scores = s.add(op::kind::SoftMaxBackward, {of_weights, weights}, s.tensor(scores, f32), {},
            {{op::attr::axis, -1}});
    const auto of_query = s.add(op::kind::MatMul, {of_scores, key}, s.tensor(q_shape, f32));
    s.run();

    numbers expected(q.size());
    for (int64_t row = 0; row < heads * rows; row++) {
        const int64_t of = row / rows * keys;
        numbers weight(static_cast<size_t>(keys)), of_weight(static_cast<size_t>(keys));
        float sum = 0, both = 0;
        for (int64_t j = 0; j < keys; j++) {
            float dot = 0;
            for (int64_t i = 0; i < size; i++) {
                dot += q[row * size + i] * k[(of + j) * size + i];
                of_weight[j] += g[row * size + i] * v[(of + j) * size + i];
            }
            sum += weight[j] = std::exp(dot);
        }
        for (int64_t j = 0; j < keys; j++) both += (weight[j] /= sum) * of_weight[j];
        for (int64_t j = 0; j < keys; j++)
            for (int64_t i = 0; i < size; i++)
                expected[row * size + i] += weight[j] * (of_weight[j] - both) * k[(of + j) * size + i];
    }
    check("training f32", s.result(of_query), expected, 1e-4f);
}

// Numbers from each type to each other, from rows to columns: every type here holds them.
void conversions() {
    using type = memory::data_type;
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    dnnl::stream stream(engine);
    const type types[] = {type::f32, type::bf16, type::f16, type::s32, type::s8, type::u8, type::f8_e5m2, type::f8_e4m3,
            type::s4, type::u4};
    const memory::desc plain({2, 3}, type::f32, memory::format_tag::ab);
    const numbers expected = {0, 1, 2, 3, 4, 6};
    numbers start = expected;
    for (auto from : types)
        for (auto to : types) {
            numbers end(expected.size());
            memory first(plain, engine, start.data()), last(plain, engine, end.data());
            memory source({{2, 3}, from, memory::format_tag::ab}, engine);
            memory result({{2, 3}, to, memory::format_tag::ba}, engine);
            dnnl::reorder(first, source).execute(stream, first, source);
            dnnl::reorder(source, result).execute(stream, source, result);
            dnnl::reorder(result, last).execute(stream, result, last);
            stream.wait();
            check(std::string("reorder ") + dnnl_dt2str(memory::convert_to_c(from)) + " to "
                            + dnnl_dt2str(memory::convert_to_c(to)),
                    end, expected, 0);
        }
}

// Numbers that 4 bits do not hold become the nearest that they do.
void saturation() {
    using type = memory::data_type;
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    dnnl::stream stream(engine);
    const memory::desc plain({5}, type::f32, memory::format_tag::a);
    numbers start = {-300, -0.5f, 2.5f, 6.6f, 300};
    for (auto of : {type::s4, type::u4}) {
        numbers end(start.size());
        memory first(plain, engine, start.data()), last(plain, engine, end.data());
        memory packed({{5}, of, memory::format_tag::a}, engine);
        dnnl::reorder(first, packed).execute(stream, first, packed);
        dnnl::reorder(packed, last).execute(stream, packed, last);
        stream.wait();
        const numbers expected = of == type::s4 ? numbers {-8, 0, 2, 7, 7} : numbers {0, 0, 2, 7, 15};
        check(std::string("saturation to ") + dnnl_dt2str(memory::convert_to_c(of)), end, expected, 0);
    }
}

// A program that compares with primitives says that there are none.
void primitives() {
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    const memory::desc square({4, 4}, memory::data_type::f32, memory::format_tag::ab);
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    dnnl::post_ops post_ops;
    post_ops.append_binary(dnnl::algorithm::binary_div, square);
    attr.set_post_ops(post_ops);
    for (int turn = 0; turn < 2; turn++) {
        try {
            dnnl::matmul::primitive_desc(engine, square, square, square, attr);
            std::printf("a primitive: made\n");
            faults++;
        } catch (const dnnl::error &error) {
            std::printf("a primitive: %s\n", dnnl_status2str(error.status));
            if (error.status != dnnl_unimplemented) faults++;
        }
    }
}

} // namespace

int main() {
    for (auto type : {data_type::f32, data_type::bf16, data_type::f16}) {
        attention("attention", type, 3, 1);
        attention("attention of grouped queries", type, 2, 3);
        attention("attention of one key head", type, 1, 3);
        gated_mlp(type);
    }
    training();
    conversions();
    saturation();
    primitives();
    std::printf("%d faults\n", faults);
    return faults != 0;
}
