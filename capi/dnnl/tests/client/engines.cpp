// Engines, streams, allocators, and what is set for the whole process.
#include "check.hpp"

#include <atomic>
#include <cstdlib>

namespace client {

namespace {

std::atomic<int> given {0}, returned {0}, misaligned {0};
std::atomic<bool> refuse {false};

void *take(size_t size, size_t alignment) {
    if (refuse) return nullptr;
    given++;
    void *memory = nullptr;
    if (posix_memalign(&memory, alignment < sizeof(void *) ? sizeof(void *) : alignment, size ? size : 1) != 0)
        return nullptr;
    if (alignment != 0 && reinterpret_cast<uintptr_t>(memory) % alignment != 0) misaligned++;
    return memory;
}

void give_back(void *memory) {
    if (memory) returned++;
    free(memory);
}

// As plain malloc may: aligned to 16 bytes and to no more.
constexpr size_t plain = 16;
void *last_plain = nullptr;

void *take_plain(size_t size, size_t) {
    void *memory = nullptr;
    if (posix_memalign(&memory, 64, size + plain) != 0) return nullptr;
    given++;
    return last_plain = static_cast<char *>(memory) + plain;
}

void give_back_plain(void *memory) {
    if (!memory) return;
    returned++;
    free(static_cast<char *>(memory) - plain);
}

dnnl::engine engine_with(void *(*host_malloc)(size_t, size_t), void (*host_free)(void *)) {
    // The allocator is gone before the engine is used: the engine has the callbacks.
    dnnl::graph::allocator allocator(host_malloc, host_free);
    return dnnl::graph::make_engine_with_allocator(dnnl::engine::kind::cpu, 0, allocator);
}

} // namespace

void service() {
    const dnnl_version_t *version = dnnl_version();
    say("version, major", std::to_string(version->major));
    say("version, minor", std::to_string(version->minor));
    say("version, hash is given", version->hash && *version->hash);
    say("version, gpu runtime", std::to_string(version->gpu_runtime));
    dnnl_fpmath_mode_t mode = dnnl_fpmath_mode_any;
    say("default fpmath mode, get", dnnl_get_default_fpmath_mode(&mode));
    say("default fpmath mode", std::to_string(mode));
    say("default fpmath mode, set bf16", dnnl_set_default_fpmath_mode(dnnl_fpmath_mode_bf16));
    say("default fpmath mode, get again", dnnl_get_default_fpmath_mode(&mode));
    say("default fpmath mode then", std::to_string(mode));
    say("default fpmath mode, set 77", dnnl_set_default_fpmath_mode(static_cast<dnnl_fpmath_mode_t>(77)));
    for (int level : {0, 1, 2, 3, -1}) say("verbose " + std::to_string(level), dnnl_set_verbose(level));
    say("verbose 0 again", dnnl_set_verbose(0));
    say("isa in use is known", dnnl_get_effective_cpu_isa() != dnnl_cpu_isa_default);
    say("isa set after use", dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2));
}

void engines() {
    say("engines of kind cpu", std::to_string(dnnl::engine::get_count(dnnl::engine::kind::cpu)));
    say("engines of kind gpu", std::to_string(dnnl::engine::get_count(dnnl::engine::kind::gpu)));
    dnnl_engine_t raw = nullptr;
    say("engine cpu 0", dnnl_engine_create(&raw, dnnl_cpu, 0));
    say("engine, destroy", dnnl_engine_destroy(raw));
    say("engine cpu 5", dnnl_engine_create(&raw, dnnl_cpu, 5));
    say("engine gpu 0", dnnl_engine_create(&raw, dnnl_gpu, 0));
    say("engine any 0", dnnl_engine_create(&raw, dnnl_any_engine, 0));
    say("engine NULL, destroy", dnnl_engine_destroy(nullptr));

    const dnnl::engine engine = cpu();
    say("engine, kind is cpu", engine.get_kind() == dnnl::engine::kind::cpu);
    dnnl_stream_t stream = nullptr;
    for (unsigned flags : {1u, 2u, 3u, 0u, 4u, 5u, 0x100u}) {
        const dnnl_status_t status = dnnl_stream_create(&stream, engine.get(), flags);
        say("stream of flags " + std::to_string(flags), status);
        if (status == dnnl_success) dnnl_stream_destroy(stream);
    }
    dnnl::stream in_order(engine);
    say("stream, its engine", in_order.get_engine() == engine);
    attempt("stream, wait", [&] { in_order.wait(); });
    say("stream NULL, destroy", dnnl_stream_destroy(nullptr));
}

void allocators() {
    attempt("allocator of defaults", [] { dnnl::graph::allocator(); });
    dnnl_graph_allocator_t half = nullptr;
    say("allocator of one function", dnnl_graph_allocator_create(&half, take, nullptr));
    dnnl_graph_allocator_destroy(half);
    say("allocator NULL, destroy", dnnl_graph_allocator_destroy(nullptr));
    attempt("engine with allocator", [] { engine_with(take, give_back); });
    attempt("engine with allocator, index 3", [] {
        dnnl::graph::make_engine_with_allocator(dnnl::engine::kind::cpu, 3, dnnl::graph::allocator());
    });
    answer("allocator, tensor of its memory", [] {
        const tensor t(Small().lt[1], engine_with(take, give_back));
        const auto address = reinterpret_cast<uintptr_t>(t.get_data_handle());
        return std::string(!address ? "no memory" : address % 64 == 0 ? "aligned" : "not aligned");
    });
    say("allocator, memory came from it", given > 0);
    say("allocator, memory went back", given == returned);
    say("allocator, alignment as asked", misaligned == 0);
    answer("allocator, execution on its engine", [] {
        Small s;
        s.engine = engine_with(take, give_back);
        s.stream = dnnl::stream(s.engine);
        s.compile().execute(s.stream, s.inputs(), s.outputs());
        s.stream.wait();
        return s.verdict();
    });
    say("allocator, all went back", given == returned);
    answer("allocator of plain malloc, tensor of its memory", [] {
        const tensor t(Small().lt[1], engine_with(take_plain, give_back_plain));
        return std::string(t.get_data_handle() == last_plain ? "as given" : "elsewhere");
    });
    answer("allocator of plain malloc, execution on its engine", [] {
        Small s;
        s.engine = engine_with(take_plain, give_back_plain);
        s.stream = dnnl::stream(s.engine);
        s.compile().execute(s.stream, s.inputs(), s.outputs());
        s.stream.wait();
        return s.verdict();
    });
    say("allocator of plain malloc, all went back", given == returned);
    answer("allocator that fails", [] {
        const Small s;
        const dnnl::engine engine = engine_with(take, give_back);
        refuse = true;
        const tensor t(s.lt[1], engine);
        return std::string(t.get_data_handle() ? "memory of another" : "a tensor without memory");
    });
    refuse = false;
}

void caches() {
    const auto capacity = [] { return std::to_string(dnnl::graph::get_compiled_partition_cache_capacity()); };
    say("partition cache, capacity", capacity());
    for (int value : {7, 0, -1, 1024}) {
        say("partition cache, set " + std::to_string(value),
                dnnl_graph_set_compiled_partition_cache_capacity(value));
        say("partition cache, capacity then", capacity());
    }
    for (int value : {0, 1, 1024}) {
        dnnl_graph_set_compiled_partition_cache_capacity(value);
        Small s;
        for (int i = 0; i < 3; i++) s.compile().execute(s.stream, s.inputs(), s.outputs());
        s.stream.wait();
        say("partition cache of " + std::to_string(value) + ", execution", s.verdict());
    }

    const auto flag = [] { return std::to_string(dnnl::graph::get_constant_tensor_cache()); };
    const auto limit = [] {
        return std::to_string(dnnl::graph::get_constant_tensor_cache_capacity(dnnl::engine::kind::cpu));
    };
    say("constant cache, flag", flag());
    say("constant cache, capacity", limit());
    for (int value : {1, 0, 5, -1}) {
        say("constant cache, set " + std::to_string(value), dnnl_graph_set_constant_tensor_cache(value));
        say("constant cache, flag then", flag());
        say("constant cache, capacity then", limit());
    }
    for (size_t value : {size_t {100}, size_t {0}, SIZE_MAX}) {
        say("constant cache, set capacity " + std::to_string(value),
                dnnl_graph_set_constant_tensor_cache_capacity(dnnl_cpu, value));
        say("constant cache, capacity after that", limit());
        say("constant cache, flag after that", flag());
    }
    size_t size = 0;
    say("constant cache, set capacity of any",
            dnnl_graph_set_constant_tensor_cache_capacity(dnnl_any_engine, 5));
    say("constant cache, capacity of any",
            dnnl_graph_get_constant_tensor_cache_capacity(dnnl_any_engine, &size));

    for (unsigned mode : {0u, 1u, 2u, 3u, 4u, 0x80u})
        say("dump mode " + std::to_string(mode),
                dnnl_graph_set_dump_mode(static_cast<dnnl_graph_dump_mode_t>(mode)));
    dnnl_graph_set_dump_mode(dnnl_graph_dump_mode_none);
}

} // namespace client
