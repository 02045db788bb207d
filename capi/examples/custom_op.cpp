// A graph with an op of the program's own between two of the library's, built from values and run as a whole.
//
// y = relu(clip(x · w)), where clip is a class of this file.
#include <sterna.hpp>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <vector>

class clip : public sterna::custom_op {
public:
    std::vector<std::vector<std::int64_t>> output_dims(sterna::custom_node_ref,
            const std::vector<sterna::logical_tensor> &inputs, std::size_t) const override {
        const auto dims = inputs.at(0).dims();
        return {{dims.begin(), dims.end()}};
    }
    void run(sterna::custom_node_ref node, const std::vector<sterna::custom_input> &inputs,
            const std::vector<sterna::custom_output> &outputs) const override {
        const float limit = node.floats("limit")[0];
        const auto from = inputs[0].values<float>();
        std::transform(from.begin(), from.end(), outputs[0].values<float>().begin(),
                [limit](float number) { return std::min(number, limit); });
    }
};

int main() try {
    using sterna::data_type;

    sterna::graph_builder g;
    const auto x = g.input("x", data_type::f32, {sterna::unknown_dim, 2});
    const auto w = g.constant("w", {2, 2}, std::vector<float> {1, 0, 0, 2});
    sterna::custom_node node("example::Clip");
    node.attr("limit", 5.0f);
    const auto clipped = g.custom(node, {g.matmul(x, w)}, {sterna::logical_tensor::unknown(0, data_type::f32)}).at(0);
    g.output("y", g.relu(clipped));

    sterna::session_options options;
    options.op("example::Clip", std::make_shared<clip>());
    const sterna::session session(g.build(), sterna::engine(), options);

    // Any number of rows.
    const std::vector<float> rows {1, -2, 3, 4, -9, 2};
    for (const std::int64_t count : {1, 3}) {
        const auto outputs = session.run({{"x", {rows, {count, 2}}}});
        const auto y = outputs.values<float>("y");
        for (std::size_t i = 0; i < y.size(); i++) std::cout << y[i] << (i + 1 < y.size() ? ' ' : '\n');
    }
} catch (const sterna::error &error) {
    std::cerr << sterna::name(error.status()) << ": " << error.what() << '\n';
    return 1;
}
