// The whole way of a select in C++: described, compiled, executed.
//
// dst = cond ? then : else, where cond broadcasts onto the rows of then, and else is one value for all.
#include <sterna.hpp>

#include <array>
#include <cstdint>
#include <iostream>
#include <vector>

int main() try {
    using sterna::data_type;
    enum : std::size_t { cond_id, then_id, else_id, dst_id };

    const sterna::logical_tensor cond(cond_id, data_type::boolean, {3}), then(then_id, data_type::f32, {2, 3}),
            otherwise(else_id, data_type::f32, {}), dst = sterna::logical_tensor::unknown(dst_id, data_type::f32);
    sterna::graph graph;
    graph.add(sterna::op(0, sterna::op_kind::select, {cond, then, otherwise}, {dst}, "choose"));
    graph.finalize();

    const sterna::engine engine;
    const sterna::stream stream(engine);
    for (const auto &partition : graph.partitions()) {
        const auto compiled = partition.compile(engine);

        const std::array<std::uint8_t, 3> cond_values {1, 0, 1};
        const std::vector<float> then_values {1, 2, 3, 4, 5, 6}, else_value {-1};
        std::vector<float> result(6);
        compiled.execute(stream,
                {compiled.tensor("cond", cond_values), compiled.tensor("then", then_values),
                        compiled.tensor("else", else_value)},
                {compiled.tensor("dst", result)});

        for (std::size_t i = 0; i < result.size(); i++) std::cout << result[i] << (i % 3 == 2 ? '\n' : ' ');
    }
} catch (const sterna::error &error) {
    std::cerr << sterna::name(error.status()) << ": " << error.what() << '\n';
    return 1;
}
