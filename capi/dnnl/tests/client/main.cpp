// A client of oneDNN Graph, written against upstream's headers. It prints a line for each check: a name, and what the
// library answered. Linked once, it runs on whatever libdnnl.so.3 the loader finds.
//
//     client            runs all groups, each in a process of its own
//     client GROUP...   runs these groups in this process
#include "check.hpp"

#include <cstdio>

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)();
    } groups[] = {
            {"service", client::service},
            {"engines", client::engines},
            {"logical tensors", client::logical_tensors},
            {"tensors", client::tensors},
            {"ops", client::ops},
            {"graphs", client::graphs},
            {"partitions", client::partitions},
            {"compilation", client::compilation},
            {"layouts", client::layouts},
            {"bits", client::bits},
            {"shapes", client::shapes},
            {"in place", client::in_place},
            {"scalars", client::scalars},
            {"execution", client::execution},
            {"allocators", client::allocators},
            {"caches", client::caches},
            {"nulls", client::nulls},
            {"numbers", client::numbers},
            {"faults", client::faults},
            {"descriptors", client::descriptors},
            {"memories", client::memories},
            {"reorders", client::reorders},
            {"attributes", client::attributes},
            {"absent", client::absent},
    };
    int unknown = 0;
    for (int i = 1; i < argc; i++) {
        bool found = false;
        for (const auto &group : groups)
            if (group.name == std::string(argv[i])) {
                found = true;
                group.run();
            }
        if (!found) {
            std::fprintf(stderr, "no group is called %s\n", argv[i]);
            unknown++;
        }
    }
    if (argc == 1)
        for (const auto &group : groups) {
            client::isolated(std::string("end of ") + group.name, [&] {
                group.run();
                return std::string("reached");
            });
        }
    return unknown;
}
