// Runs a model of ONNX: `run_onnx import/tests/data/classifier.onnx`.
#include <sterna_models.hpp>

#include <cstdio>
#include <vector>

int main(int count, char **arguments) try {
    const sterna::session session(sterna::load(count == 2 ? arguments[1] : ""), sterna::engine());
    const std::vector<float> x {1, 2, 3, 4, 4, 3, 2, 1};
    const auto outputs = session.run({{"x", {x, {2, 4}}}});
    const char *between = "";
    for (const float y : outputs.values<float>("y")) std::printf("%s%.3f", between, y), between = " ";
    std::puts("");
} catch (const sterna::error &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
