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
    sterna_custom_node_t *node;
    sterna_graph_builder_t *builder;
    size_t value;
    sterna_op_t *bare;
    sterna_logical_tensor_t built[3];
    sterna_attention_options_t built_attention;
    sterna_model_t *model;
    sterna_model_port_t input_port, output_port;
    sterna_session_options_t session_options;
    sterna_session_t *session, *stateful;
    sterna_session_state_t *state;
    sterna_named_dims_t x_dims, past_dims;
    sterna_named_view_t named_in;
    sterna_named_view_mut_t named_out;
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

static const char *const x_name = "x", *const y_name = "y";

static inline int no_source(void *user_data, size_t input_num, const sterna_model_port_t *inputs,
                            sterna_model_t **model, char *message, size_t message_size) {
    (void)user_data, (void)input_num, (void)inputs, (void)model, (void)message, (void)message_size;
    return STERNA_STATUS_RUNTIME_ERROR;
}

/* Objects of graphs that run as a whole. */
static inline void make_whole(struct fixture *f) {
    OK(sterna_custom_node_create(&f->node, "domain::Name"));
    OK(sterna_custom_node_set_attr_f32(f->node, "floats", numbers, 2));
    OK(sterna_custom_node_set_attr_s64(f->node, "integers", integers, 1));
    OK(sterna_custom_node_set_attr_str(f->node, "text", "word"));
    OK(sterna_op_create(&f->bare, 0, STERNA_OP_RELU, ""));

    sterna_graph_builder_t *builder;
    size_t x, y;
    OK(sterna_graph_builder_create(&builder));
    OK(sterna_graph_builder_add_input(builder, "x", STERNA_DATA_TYPE_F32, 2, two, &x));
    OK(sterna_graph_builder_add_op(builder, f->bare, 1, &x, STERNA_DATA_TYPE_UNDEF, 1, &y));
    OK(sterna_graph_builder_add_output(builder, "y", y));
    OK(sterna_graph_builder_build(builder, &f->model));
    OK(sterna_graph_builder_destroy(builder));
    f->session_options.struct_size = sizeof f->session_options;
    OK(sterna_session_create(&f->session, f->model, f->s.engine, &f->session_options));
    f->input_port.names = &x_name;
    f->input_port.name_num = 1;
    f->input_port.tensor = f->s.desc[ELSE];
    f->output_port.names = &y_name;
    f->output_port.name_num = 1;
    f->output_port.tensor = f->s.desc[DST];
    f->named_in.name = "x";
    f->named_in.view = (sterna_view_t){f->s.memory[ELSE], STERNA_DATA_TYPE_F32, 2, two, NULL};
    f->named_out.name = "y";
    f->named_out.view = (sterna_view_mut_t){f->s.memory[DST], STERNA_DATA_TYPE_F32, 2, two, NULL};

    f->x_dims = (sterna_named_dims_t){"x", 2, two};
    f->past_dims = (sterna_named_dims_t){"past", 2, two};

    /* A sum from run to run. */
    sterna_model_t *model;
    sterna_op_t *add;
    size_t operands[2], sum;
    OK(sterna_op_create(&add, 0, STERNA_OP_ADD, ""));
    OK(sterna_graph_builder_create(&builder));
    OK(sterna_graph_builder_add_input(builder, "x", STERNA_DATA_TYPE_F32, 2, two, &operands[0]));
    OK(sterna_graph_builder_add_input(builder, "past", STERNA_DATA_TYPE_F32, 2, two, &operands[1]));
    OK(sterna_graph_builder_add_op(builder, add, 2, operands, STERNA_DATA_TYPE_UNDEF, 1, &sum));
    OK(sterna_graph_builder_add_op(builder, f->bare, 1, &sum, STERNA_DATA_TYPE_UNDEF, 1, &y));
    OK(sterna_graph_builder_add_output(builder, "present", sum));
    OK(sterna_graph_builder_add_output(builder, "y", y));
    OK(sterna_graph_builder_build(builder, &model));
    OK(sterna_graph_builder_destroy(builder));
    OK(sterna_op_destroy(add));
    sterna_state_link_t link;
    memset(&link, 0, sizeof link);
    link.struct_size = sizeof link;
    link.past = "past";
    link.present = "present";
    const sterna_state_link_t *links[] = {&link};
    sterna_session_options_t options = f->session_options;
    options.link_num = 1;
    options.links = links;
    OK(sterna_session_create(&f->stateful, model, f->s.engine, &options));
    OK(sterna_model_destroy(model));
    OK(sterna_session_state_create(&f->state, f->stateful, 0, NULL));

    const int64_t head_dims[] = {2, 3, 4};
    OK(sterna_graph_builder_create(&f->builder));
    for (int i = 0; i < 3; i++) {
        const char *const names[] = {"q", "k", "v"};
        OK(sterna_graph_builder_add_input(f->builder, names[i], STERNA_DATA_TYPE_F32, 3, head_dims, &f->value));
        OK(sterna_graph_builder_get_logical_tensor(f->builder, f->value, &f->built[i]));
    }
    f->built_attention.struct_size = sizeof f->built_attention;
    f->built_attention.q = &f->built[0];
    f->built_attention.k = &f->built[1];
    f->built_attention.v = &f->built[2];
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
    make_whole(f);
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
    OK(sterna_custom_node_destroy(f->node));
    OK(sterna_op_destroy(f->bare));
    OK(sterna_graph_builder_destroy(f->builder));
    OK(sterna_session_destroy(f->session));
    OK(sterna_session_state_destroy(f->state));
    OK(sterna_session_destroy(f->stateful));
    OK(sterna_model_destroy(f->model));
    OK(sterna_string_destroy(f->json));
    OK(sterna_string_destroy(f->text));
}

#endif
