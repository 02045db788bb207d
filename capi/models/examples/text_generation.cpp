// Generates tokens with a decoder that was exported to ONNX with its cache: the prompt at once, then one token after the
// other, always the likeliest. The keys and values stay in a state of the session.
//
// `text_generation model.onnx 576,659,1771 100`
#include <sterna_models.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

// The likeliest token behind some tokens of one sequence.
std::int64_t next(const sterna::session &session, sterna::session_state &state, const std::vector<std::int64_t> &tokens) {
    const auto past = static_cast<std::int64_t>(state.size()), count = static_cast<std::int64_t>(tokens.size());
    const std::vector<std::int64_t> mask(static_cast<std::size_t>(past + count), 1);
    std::vector<std::int64_t> positions(tokens.size());
    std::iota(positions.begin(), positions.end(), past);
    const sterna::named_operand given[] = {{"input_ids", {tokens, {1, count}}},
            {"attention_mask", {mask, {1, past + count}}}, {"position_ids", {positions, {1, count}}}};
    std::vector<sterna::named_operand> inputs;
    for (const auto &port : session.inputs())
        for (const auto &one : given)
            if (one.name == port.name) inputs.push_back(one);
    const auto outputs = session.run(state, inputs);
    const auto logits = outputs.values<float>("logits");
    const float *last = logits.end() - logits.size() / tokens.size();
    return std::max_element(last, logits.end()) - last;
}

int main(int count, char **arguments) try {
    if (count < 2 || count > 4) {
        std::cerr << "usage: text_generation MODEL [TOKEN,... [STEPS]]\n";
        return 2;
    }
    std::vector<std::int64_t> prompt;
    std::istringstream words(count > 2 ? arguments[2] : "1,2,3,4");
    for (std::string word; std::getline(words, word, ',');) prompt.push_back(std::stoll(word));
    const int steps = count > 3 ? std::stoi(arguments[3]) : 100;

    sterna::session_options options;
    const sterna::session session(sterna::load(arguments[1]), sterna::engine(), options.find_states());
    sterna::session_state state(session);
    std::int64_t token = next(session, state, prompt);
    for (int step = 0; step < steps; step++) {
        std::cout << token << (step + 1 < steps ? ' ' : '\n');
        token = next(session, state, {token});
    }
} catch (const sterna::error &error) {
    std::cerr << sterna::name(error.status()) << ": " << error.what() << '\n';
    return 1;
}
