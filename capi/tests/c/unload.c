/* A program loads the library, starts workers and unloads it while they live, again and again. */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sterna.h>

enum { LENGTH = 1 << 20 };

#define REQUIRE(condition)                                                                  \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);         \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)

/* A function of the library that is loaded. POSIX promises that the bits of the pointer are the function's. */
#define FUNCTION(name)                                                                      \
    __extension__ __typeof__(&name) name##_;                                                              \
    do {                                                                                    \
        void *symbol = dlsym(library, #name);                                               \
        REQUIRE(symbol != NULL);                                                            \
        memcpy(&name##_, &symbol, sizeof symbol);                                           \
    } while (0)

static void round_trip(const char *path, int keep_engine) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library != NULL);
    FUNCTION(sterna_engine_create_with_options);
    FUNCTION(sterna_engine_destroy);
    FUNCTION(sterna_logical_tensor_init_with_dims);
    FUNCTION(sterna_op_create);
    FUNCTION(sterna_op_add_input);
    FUNCTION(sterna_op_add_output);
    FUNCTION(sterna_op_destroy);
    FUNCTION(sterna_partition_create_with_op);
    FUNCTION(sterna_partition_compile);
    FUNCTION(sterna_partition_destroy);
    FUNCTION(sterna_compiled_partition_create);
    FUNCTION(sterna_compiled_partition_execute);
    FUNCTION(sterna_compiled_partition_destroy);
    FUNCTION(sterna_stream_create);
    FUNCTION(sterna_stream_destroy);
    FUNCTION(sterna_tensor_create);
    FUNCTION(sterna_tensor_destroy);

    sterna_engine_t *engine;
    sterna_engine_options_t options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.threads = 3;
    REQUIRE(sterna_engine_create_with_options_(&engine, &options) == 0);
    sterna_logical_tensor_t desc[4];
    const int64_t dims[] = {LENGTH};
    sterna_op_t *op;
    REQUIRE(sterna_op_create_(&op, 0, STERNA_OP_SELECT, "") == 0);
    for (size_t i = 0; i < 4; i++) {
        int type = i == 0 ? STERNA_DATA_TYPE_BOOLEAN : STERNA_DATA_TYPE_F32;
        REQUIRE(sterna_logical_tensor_init_with_dims_(&desc[i], i, type, 1, dims, STERNA_LAYOUT_TYPE_STRIDED, 0) == 0);
        REQUIRE((i < 3 ? sterna_op_add_input_(op, &desc[i]) : sterna_op_add_output_(op, &desc[i])) == 0);
    }
    sterna_partition_t *partition;
    REQUIRE(sterna_partition_create_with_op_(&partition, op, STERNA_ENGINE_KIND_CPU) == 0);
    sterna_compiled_partition_t *compiled;
    REQUIRE(sterna_compiled_partition_create_(&compiled, partition) == 0);
    const sterna_logical_tensor_t *inputs[] = {&desc[0], &desc[1], &desc[2]}, *outputs[] = {&desc[3]};
    REQUIRE(sterna_partition_compile_(partition, compiled, 3, inputs, 1, outputs, engine) == 0);
    sterna_stream_t *stream;
    REQUIRE(sterna_stream_create_(&stream, engine, STERNA_STREAM_FLAG_IN_ORDER) == 0);

    void *memory[4];
    sterna_tensor_t *tensor[4];
    for (size_t i = 0; i < 4; i++) {
        memory[i] = calloc(LENGTH, sizeof(float));
        REQUIRE(memory[i] != NULL);
        REQUIRE(sterna_tensor_create_(&tensor[i], &desc[i], engine, memory[i]) == 0);
    }
    memset(memory[0], 1, LENGTH);
    ((float *)memory[1])[LENGTH - 1] = 5;
    const sterna_tensor_t *from[] = {tensor[0], tensor[1], tensor[2]}, *to[] = {tensor[3]};
    REQUIRE(sterna_compiled_partition_execute_(compiled, stream, 3, from, 1, to) == 0);
    REQUIRE(((float *)memory[3])[LENGTH - 1] == 5);

    for (size_t i = 0; i < 4; i++) {
        sterna_tensor_destroy_(tensor[i]);
        free(memory[i]);
    }
    sterna_stream_destroy_(stream);
    sterna_compiled_partition_destroy_(compiled);
    sterna_partition_destroy_(partition);
    sterna_op_destroy_(op);
    /* Workers of an engine that is destroyed are about to end when the library goes; of one that is forgotten, sleep. */
    if (!keep_engine) {
        sterna_engine_destroy_(engine);
    }
    REQUIRE(dlclose(library) == 0);
}

static void *on_a_thread(void *path) {
    round_trip(path, 0);
    return NULL;
}

int main(int argc, char **argv) {
    alarm(120);
    REQUIRE(argc == 2);
    for (int i = 0; i < 6; i++) {
        round_trip(argv[1], i % 2);
    }
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, on_a_thread, argv[1]) == 0);
    pthread_join(thread, NULL);
    return 0;
}
