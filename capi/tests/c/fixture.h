/* One good object of each type, for the calls of bad_input.rs to be made with. */
#ifndef FIXTURE_H
#define FIXTURE_H

#include "check.h"

struct fixture {
    struct select s;
    sterna_allocator_t *allocator;
    sterna_graph_t *open, *filtered;
    sterna_tensor_t *scalar;
    sterna_logical_tensor_t scalar_desc;
    char *json, *text;
    const sterna_logical_tensor_t *in_desc[3], *out_desc[1];
    const sterna_tensor_t *in[3], *out[1];
    sterna_logical_tensor_t heads[6];
    sterna_attention_options_t attention;
    sterna_attention_backward_options_t backward;
    sterna_profiler_t profiler;
    sterna_engine_options_t engine_options;
    /* What calls write to; 0xAB at first. */
    uint64_t written[4][64];
};

static const int64_t two[] = {2, 3};
static const float numbers[] = {1, 2};
static const int64_t integers[] = {1, 2};
static const uint8_t truth[] = {1};
static const int64_t host_value = 5;
static char no_utf8[1 << 14];
static const void *const nulls[4] = {NULL, NULL, NULL, NULL};

static inline void execution_ended(void *user_data, const sterna_execution_profile_t *profile) {
    (void)user_data;
    (void)profile;
}

/* Descriptions that are none: one thing is wrong with each. */
static sterna_logical_tensor_t bad_desc[10];

static inline void make_bad_descs(void) {
    const int64_t dims[] = {2, 3};
    for (int i = 0; i < 10; i++) {
        OK(sterna_logical_tensor_init_with_dims(&bad_desc[i], 1, STERNA_DATA_TYPE_F32, 2, dims,
                                                STERNA_LAYOUT_TYPE_STRIDED, STERNA_TENSOR_PROPERTY_UNDEF));
    }
    bad_desc[0].ndims = 13;
    bad_desc[1].ndims = -2;
    bad_desc[2].data_type = -1;
    bad_desc[3].data_type = 0x7fff;
    bad_desc[4].layout_type = -1;
    bad_desc[5].layout_type = 0x7fff;
    bad_desc[6].property = 0x7fff;
    bad_desc[7].dims[1] = -3;
    bad_desc[8].layout.strides[0] = -1;
    bad_desc[9].dims[0] = bad_desc[9].dims[1] = INT64_MAX;
    memset(no_utf8, 0xff, sizeof no_utf8 - 1);
}

static inline void make(struct fixture *f) {
    memset(f, 0, sizeof *f);
    OK(sterna_allocator_create(&f->allocator, NULL, NULL));
    sterna_engine_t *engine;
    OK(make_engine(&engine, f->allocator, 1));
    compile_select(&f->s, engine, 6, 2);
    OK(make_tensors(&f->s, 6, 2));
    OK(sterna_graph_create(&f->open, STERNA_ENGINE_KIND_CPU));
    OK(sterna_graph_create(&f->filtered, STERNA_ENGINE_KIND_CPU));
    OK(sterna_graph_add_op(f->filtered, f->s.op));
    OK(sterna_graph_finalize(f->filtered));
    OK(sterna_graph_filter(f->filtered, STERNA_PARTITION_POLICY_FUSION));
    OK(sterna_graph_to_json(f->filtered, &f->json, NULL));
    OK(sterna_graph_to_json(f->filtered, &f->text, NULL));
    OK(sterna_logical_tensor_init(&f->scalar_desc, 9, STERNA_DATA_TYPE_S64, 0, STERNA_LAYOUT_TYPE_STRIDED,
                                  STERNA_TENSOR_PROPERTY_HOST_SCALAR));
    OK(sterna_tensor_create_scalar(&f->scalar, &f->scalar_desc, &host_value));
    const int64_t head_dims[] = {2, 3, 4};
    for (size_t i = 0; i < 6; i++) {
        OK(sterna_logical_tensor_init_with_dims(&f->heads[i], 20 + i, STERNA_DATA_TYPE_F32, 3, head_dims,
                                                STERNA_LAYOUT_TYPE_STRIDED, STERNA_TENSOR_PROPERTY_VARIABLE));
    }
    f->attention.struct_size = sizeof f->attention;
    f->attention.q = &f->heads[0];
    f->attention.k = &f->heads[1];
    f->attention.v = &f->heads[2];
    f->attention.dst = &f->heads[3];
    f->attention.first_tensor_id = 30;
    f->backward.struct_size = sizeof f->backward;
    f->backward.forward = &f->attention;
    f->backward.d_dst = &f->heads[4];
    f->backward.d_q = &f->heads[5];
    f->profiler.execution = execution_ended;
    f->engine_options.struct_size = sizeof f->engine_options;
    f->engine_options.allocator = f->allocator;
    f->engine_options.profiler = &f->profiler;
    f->engine_options.threads = 2;
    for (int i = COND; i <= ELSE; i++) {
        f->in_desc[i] = &f->s.desc[i];
        f->in[i] = f->s.tensor[i];
    }
    f->out_desc[0] = &f->s.desc[DST];
    f->out[0] = f->s.tensor[DST];
    memset(f->written, 0xab, sizeof f->written);
}

/* Whether a call has written anything. */
static inline int is_written(const struct fixture *f) {
    const uint8_t *bytes = (const uint8_t *)f->written;
    for (size_t i = 0; i < sizeof f->written; i++) {
        if (bytes[i] != 0xab) {
            return 1;
        }
    }
    return 0;
}

static inline void destroy(struct fixture *f) {
    OK(sterna_allocator_destroy(f->allocator));
    OK(sterna_engine_destroy(f->s.engine));
    destroy_select(&f->s);
    OK(sterna_graph_destroy(f->open));
    OK(sterna_graph_destroy(f->filtered));
    OK(sterna_tensor_destroy(f->scalar));
    OK(sterna_string_destroy(f->json));
    OK(sterna_string_destroy(f->text));
}

#endif
