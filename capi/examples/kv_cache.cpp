// One head of attention whose keys and values stay from run to run: a prompt at once, then one token after the other,
// each of which adds one row to the caches and copies none. A second sequence starts from the same prompt.
#include <sterna.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

constexpr std::int64_t width = 8;

std::vector<float> numbers(std::size_t count, unsigned seed) {
    std::vector<float> out;
    for (std::size_t i = 0; i < count; i++) out.push_back(std::sin(static_cast<float>(i * 37 + seed * 101)));
    return out;
}

sterna::model layer() {
    using sterna::data_type;
    sterna::graph_builder g;
    const auto x = g.input("x", data_type::f32, {sterna::unknown_dim, width});
    const auto offset = g.input("offset", data_type::s32, {});
    const auto projected = [&](const std::string &name, unsigned seed) {
        return g.matmul(x, g.constant(name, {width, width}, numbers(width * width, seed)));
    };
    const auto cached = [&](const std::string &name, unsigned seed) {
        const auto past = g.input("past_" + name, data_type::f32, {sterna::unknown_dim, width});
        const auto present = g.concat({past, projected(name + " weights", seed)}, 0);
        g.output("present_" + name, present);
        return present;
    };
    const auto k = cached("k", 2), v = cached("v", 3), q = projected("q weights", 1);
    g.output("y", g.attention(sterna::attention(q.desc(), k.desc(), v.desc()).causal(offset.desc())));
    return g.build();
}

// Runs some tokens behind those of a state, and adds their results to others.
void step(const sterna::session &session, sterna::session_state &state, const float *tokens, std::int64_t count,
        std::vector<float> &results) {
    const auto offset = static_cast<std::int32_t>(state.size());
    const sterna::operand x(sterna::data_type::f32, tokens, {count, width});
    const auto outputs = session.run(state, {{"x", x}, {"offset", offset}});
    const auto y = outputs.values<float>("y");
    results.insert(results.end(), y.begin(), y.end());
}

int main() try {
    // `find_states` finds `past_k` and `present_k`, `past_v` and `present_v`.
    sterna::session_options options;
    const sterna::session session(layer(), sterna::engine(), options.find_states());
    constexpr std::int64_t prompt = 5, all = 12;
    const auto tokens = numbers(all * width, 5);

    std::vector<float> whole, results;
    sterna::session_state at_once(session), state(session);
    step(session, at_once, tokens.data(), all, whole);

    step(session, state, tokens.data(), prompt, results);
    const auto second = state.fork();
    for (std::int64_t i = prompt; i < all; i++) step(session, state, tokens.data() + i * width, 1, results);

    float worst = 0;
    for (std::size_t i = 0; i < whole.size(); i++) worst = std::max(worst, std::abs(whole[i] - results[i]));
    std::cout << state.size() << " tokens, " << second.size() << " in the second sequence, "
              << (worst < 1e-5f ? "as all at once" : "not as all at once") << '\n';
} catch (const sterna::error &error) {
    std::cerr << sterna::name(error.status()) << ": " << error.what() << '\n';
    return 1;
}
