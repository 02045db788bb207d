// A program of another project.
#include <sterna.hpp>

#include <iostream>

int main() {
    const sterna::engine engine;
    std::cout << sterna::version_string() << '\n';
    return engine.kind() == sterna::engine_kind::cpu ? 0 : 1;
}
