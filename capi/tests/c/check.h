/* What the test programs share: checks that say where they failed, and a select ready to be compiled. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sterna.h>

#define REQUIRE(condition)                                                                  \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "%s:%d: not so: %s (last message: %s)\n", __FILE__, __LINE__, #condition, \
                    sterna_last_error_message());                                           \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)

/* A call ends with a status. */
#define ENDS(status, call) REQUIRE((call) == STERNA_STATUS_##status)
#define OK(call) ENDS(SUCCESS, call)

/* An engine of so many threads, with an allocator unless that is null. */
static inline sterna_status_t make_engine(sterna_engine_t **engine, const sterna_allocator_t *allocator,
                                          size_t threads) {
    sterna_engine_options_t options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.allocator = allocator;
    options.threads = threads;
    return sterna_engine_create_with_options(engine, &options);
}

enum { COND, THEN, ELSE, DST };

/* A select of f32 on one dim, from its description to its tensors. */
struct select {
    sterna_logical_tensor_t desc[4];
    sterna_op_t *op;
    sterna_partition_t *partition;
    sterna_engine_t *engine;
    sterna_compiled_partition_t *compiled;
    sterna_stream_t *stream;
    sterna_tensor_t *tensor[4];
    void *memory[4];
};

static inline void describe(sterna_logical_tensor_t *desc, size_t id, sterna_data_type_t type, int64_t length) {
    OK(sterna_logical_tensor_init_with_dims(desc, id, type, 1, &length, STERNA_LAYOUT_TYPE_STRIDED,
                                            STERNA_TENSOR_PROPERTY_VARIABLE));
}

/* Describes and compiles; the engine is the caller's. `then` has a stride of its own if it is not 1. */
static inline void compile_select(struct select *s, sterna_engine_t *engine, int64_t length, int64_t then_stride) {
    memset(s, 0, sizeof *s);
    s->engine = engine;
    describe(&s->desc[COND], COND, STERNA_DATA_TYPE_BOOLEAN, length);
    OK(sterna_logical_tensor_init_with_strides(&s->desc[THEN], THEN, STERNA_DATA_TYPE_F32, 1, &length, &then_stride,
                                               STERNA_TENSOR_PROPERTY_VARIABLE));
    describe(&s->desc[ELSE], ELSE, STERNA_DATA_TYPE_F32, length);
    describe(&s->desc[DST], DST, STERNA_DATA_TYPE_F32, length);
    OK(sterna_op_create(&s->op, 0, STERNA_OP_SELECT, "select"));
    for (int i = COND; i <= ELSE; i++) {
        OK(sterna_op_add_input(s->op, &s->desc[i]));
    }
    OK(sterna_op_add_output(s->op, &s->desc[DST]));
    OK(sterna_partition_create_with_op(&s->partition, s->op, STERNA_ENGINE_KIND_CPU));
    OK(sterna_compiled_partition_create(&s->compiled, s->partition));
    const sterna_logical_tensor_t *inputs[] = {&s->desc[COND], &s->desc[THEN], &s->desc[ELSE]};
    const sterna_logical_tensor_t *outputs[] = {&s->desc[DST]};
    OK(sterna_partition_compile(s->partition, s->compiled, 3, inputs, 1, outputs, engine));
    OK(sterna_stream_create(&s->stream, engine, STERNA_STREAM_FLAG_IN_ORDER));
}

/* Makes the tensors, with memory of their own; the condition is true at each third place. */
static inline sterna_status_t make_tensors(struct select *s, int64_t length, int64_t then_stride) {
    for (int i = COND; i <= DST; i++) {
        sterna_status_t status =
            sterna_tensor_create(&s->tensor[i], &s->desc[i], s->engine, STERNA_MEMORY_ALLOCATE);
        if (status != STERNA_STATUS_SUCCESS) {
            s->tensor[i] = NULL;
            return status;
        }
        OK(sterna_tensor_get_data_handle(s->tensor[i], &s->memory[i]));
    }
    for (int64_t i = 0; i < length; i++) {
        ((uint8_t *)s->memory[COND])[i] = i % 3 == 0;
        ((float *)s->memory[THEN])[i * then_stride] = (float)i;
        ((float *)s->memory[ELSE])[i] = (float)-i;
    }
    return STERNA_STATUS_SUCCESS;
}

static inline sterna_status_t execute_select(const struct select *s) {
    const sterna_tensor_t *inputs[] = {s->tensor[COND], s->tensor[THEN], s->tensor[ELSE]};
    const sterna_tensor_t *outputs[] = {s->tensor[DST]};
    return sterna_compiled_partition_execute(s->compiled, s->stream, 3, inputs, 1, outputs);
}

static inline void check_result(const struct select *s, int64_t length) {
    for (int64_t i = 0; i < length; i++) {
        REQUIRE(((float *)s->memory[DST])[i] == (float)(i % 3 == 0 ? i : -i));
    }
}

static inline void destroy_select(struct select *s) {
    for (int i = COND; i <= DST; i++) {
        OK(sterna_tensor_destroy(s->tensor[i]));
    }
    OK(sterna_stream_destroy(s->stream));
    OK(sterna_compiled_partition_destroy(s->compiled));
    OK(sterna_partition_destroy(s->partition));
    OK(sterna_op_destroy(s->op));
}

#endif
