// The part that the C++ timing servers share: reading a case, and answering on stdin and stdout. README.md describes
// the protocol.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace peers {

using Dims = std::vector<int64_t>;

struct Free {
    void operator()(void *block) const { std::free(block); }
};
using Memory = std::unique_ptr<uint8_t, Free>;

// Large blocks begin where a huge page can.
inline Memory allocate(size_t size) {
    const size_t align = size >= (size_t {4} << 20) ? size_t {2} << 20 : 64;
    void *block = std::aligned_alloc(align, (size + align) / align * align);
    if (!block) throw std::bad_alloc();
    return Memory(static_cast<uint8_t *>(block));
}

inline size_t element_size(const std::string &dtype) {
    static const std::map<std::string, size_t> sizes {
            {"boolean", 1}, {"u8", 1}, {"f16", 2}, {"bf16", 2}, {"f32", 4}, {"s64", 8}};
    return sizes.at(dtype);
}

inline size_t count(const Dims &dims) {
    size_t product = 1;
    for (int64_t dim : dims) product *= static_cast<size_t>(dim);
    return product;
}

struct Operand {
    std::string dtype;
    Dims dims;
    Memory data;

    size_t width() const { return element_size(dtype); }
    size_t bytes() const { return count(dims) * width(); }
};

inline std::vector<std::string> split(const std::string &text, char between) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, between);) parts.push_back(part);
    return parts;
}

// The operand written as `f32:8,12,512,512`.
inline Operand parse_operand(const std::string &text) {
    const size_t colon = text.find(':');
    Operand operand {text.substr(0, colon), {}, nullptr};
    for (const std::string &dim : split(text.substr(colon + 1), ',')) operand.dims.push_back(std::stoll(dim));
    return operand;
}

struct Case {
    std::vector<Operand> inputs;
    Operand dst;
    int threads;
    std::map<std::string, std::string> options;

    const std::string &option(const std::string &name) const { return options.at(name); }
};

inline Memory read_file(const std::string &path, size_t size) {
    Memory memory = allocate(size);
    std::ifstream file(path, std::ios::binary);
    if (!file.read(reinterpret_cast<char *>(memory.get()), static_cast<std::streamsize>(size)))
        throw std::runtime_error("cannot read " + path);
    return memory;
}

// Arguments come in pairs: --name value.
inline Case read_case(int argc, char **argv) {
    Case c;
    for (int i = 1; i + 1 < argc; i += 2) c.options[argv[i]] = argv[i + 1];
    for (const std::string &text : split(c.option("--inputs"), '/')) {
        Operand input = parse_operand(text);
        input.data = read_file(c.option("--dir") + "/" + std::to_string(c.inputs.size()) + ".bin", input.bytes());
        c.inputs.push_back(std::move(input));
    }
    c.dst = parse_operand(c.option("--output"));
    c.dst.data = allocate(c.dst.bytes());
    std::memset(c.dst.data.get(), 0xa5, c.dst.bytes());
    c.threads = std::stoi(c.option("--threads"));
    return c;
}

template <typename Execute>
void run(size_t samples, size_t batch, Execute &execute) {
    using clock = std::chrono::steady_clock;
    std::vector<double> times;
    for (size_t i = 0; i < samples; ++i) {
        const auto start = clock::now();
        for (size_t j = 0; j < batch; ++j) execute();
        const std::chrono::duration<double, std::nano> elapsed = clock::now() - start;
        times.push_back(elapsed.count() / static_cast<double>(batch));
    }
    std::cout << "times";
    for (double time : times) std::cout << ' ' << time;
    std::cout << std::endl;
}

template <typename Execute>
void write(const std::string &path, const Case &c, Execute &execute) {
    std::memset(c.dst.data.get(), 0xa5, c.dst.bytes());
    execute();
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char *>(c.dst.data.get()), static_cast<std::streamsize>(c.dst.bytes()));
    file.close();
    std::cout << (file ? "written" : "failed cannot write the result") << std::endl;
}

template <typename Execute>
void answer(const std::string &version, const Case &c, Execute &execute) {
    std::cout << "ready " << version << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string command, path;
        size_t samples = 0, batch = 0;
        words >> command;
        if (command == "run" && words >> samples >> batch) run(samples, batch, execute);
        else if (command == "write" && std::getline(words >> std::ws, path)) write(path, c, execute);
        else break;
    }
}

inline std::string one_line(std::string text) {
    for (char &c : text)
        if (c == '\n') c = ' ';
    return text;
}

// `prepare` compiles the case, and returns a version and what executes it; what it throws is a refusal.
template <typename Prepare>
int serve(int argc, char **argv, Prepare prepare) {
    try {
        Case c = read_case(argc, argv);
        auto [version, execute] = prepare(c);
        execute();
        answer(version, c, execute);
    } catch (const std::exception &error) {
        std::cout << "refused " << one_line(error.what()) << std::endl;
    }
    return 0;
}

} // namespace peers
