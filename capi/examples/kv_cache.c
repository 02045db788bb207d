/* One head of attention whose keys and values stay from run to run: one token after the other, each of which adds one
 * row to the caches and copies none. Two sequences that start alike go different ways. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sterna.h>

#define CHECK(call)                                                                         \
    do {                                                                                    \
        sterna_status_t status_ = (call);                                                   \
        if (status_ != STERNA_STATUS_SUCCESS) {                                             \
            fprintf(stderr, "%s: %s: %s\n", #call, sterna_status_string(status_),           \
                    sterna_last_error_message());                                           \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)

enum { WIDTH = 4 };

/* An input [rows, WIDTH] of any number of rows. */
static size_t rows(sterna_graph_builder_t *builder, const char *name) {
    const int64_t dims[] = {STERNA_UNKNOWN_DIM, WIDTH};
    size_t value;
    CHECK(sterna_graph_builder_add_input(builder, name, STERNA_DATA_TYPE_F32, 2, dims, &value));
    return value;
}

/* The rows of earlier runs and those of this one, which the next run gets. */
static size_t cached(sterna_graph_builder_t *builder, const char *past, const char *present, size_t value) {
    const int64_t axis = 0;
    const size_t both[] = {rows(builder, past), value};
    size_t all;
    sterna_op_t *op;
    CHECK(sterna_op_create(&op, 0, STERNA_OP_CONCAT, present));
    CHECK(sterna_op_set_attr_s64(op, STERNA_ATTR_AXIS, &axis, 1));
    CHECK(sterna_graph_builder_add_op(builder, op, 2, both, STERNA_DATA_TYPE_UNDEF, 1, &all));
    CHECK(sterna_graph_builder_add_output(builder, present, all));
    sterna_op_destroy(op);
    return all;
}

static sterna_session_t *layer(sterna_engine_t *engine) {
    sterna_graph_builder_t *builder;
    sterna_logical_tensor_t q, k, v;
    sterna_attention_options_t attention;
    size_t y;
    CHECK(sterna_graph_builder_create(&builder));
    const size_t x = rows(builder, "x"), keys = rows(builder, "keys");
    CHECK(sterna_graph_builder_get_logical_tensor(builder, x, &q));
    CHECK(sterna_graph_builder_get_logical_tensor(builder, cached(builder, "past_k", "present_k", keys), &k));
    CHECK(sterna_graph_builder_get_logical_tensor(builder, cached(builder, "past_v", "present_v", x), &v));
    memset(&attention, 0, sizeof attention);
    attention.struct_size = sizeof attention;
    attention.q = &q;
    attention.k = &k;
    attention.v = &v;
    CHECK(sterna_graph_builder_add_attention(builder, &attention, &y));
    CHECK(sterna_graph_builder_add_output(builder, "y", y));

    sterna_model_t *model;
    CHECK(sterna_graph_builder_build(builder, &model));
    sterna_graph_builder_destroy(builder);
    sterna_session_options_t options;
    sterna_session_t *session;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.find_states = 1; /* past_k and present_k, past_v and present_v */
    CHECK(sterna_session_create(&session, model, engine, &options));
    sterna_model_destroy(model);
    return session;
}

/* Runs one token; all keys are alike, so the result is the mean of the tokens so far. */
static void step(sterna_session_state_t *state, const sterna_session_t *session, float token) {
    const int64_t dims[] = {1, WIDTH};
    const float x[WIDTH] = {token, token, token, token}, keys[WIDTH] = {1, 1, 1, 1};
    float y[WIDTH];
    size_t num;
    const sterna_named_view_t in[] = {{"x", {x, STERNA_DATA_TYPE_F32, 2, dims, NULL}},
                                      {"keys", {keys, STERNA_DATA_TYPE_F32, 2, dims, NULL}}};
    const sterna_named_view_mut_t out = {"y", {y, STERNA_DATA_TYPE_F32, 2, dims, NULL}};
    CHECK(sterna_session_state_run(state, session, 2, in, 1, &out));
    CHECK(sterna_session_state_get_row_num(state, &num));
    printf("%d tokens: %g\n", (int)num, y[0]);
}

int main(void) {
    sterna_engine_t *engine;
    sterna_session_state_t *state, *second;
    CHECK(sterna_engine_create(&engine, STERNA_ENGINE_KIND_CPU, 0));
    sterna_session_t *session = layer(engine);
    CHECK(sterna_session_state_create(&state, session, 0, NULL));
    step(state, session, 1); /* 1 */
    step(state, session, 3); /* 2 */
    CHECK(sterna_session_state_fork(state, &second));
    step(state, session, 2);  /* 2 */
    step(second, session, 8); /* 4 */
    sterna_session_state_destroy(second);
    sterna_session_state_destroy(state);
    sterna_session_destroy(session);
    sterna_engine_destroy(engine);
    return 0;
}
