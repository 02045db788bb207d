/* A graph with an op of the program's own between two of the library's, built from values and run as a whole.
 *
 * y = relu(clip(x · w)), where clip is a function of this file. */
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

/* The result has the dims of the operand. */
static int infer(void *user_data, const sterna_custom_node_t *node, size_t input_num,
                 const sterna_logical_tensor_t *inputs, size_t output_num, sterna_logical_tensor_t *outputs,
                 char *message, size_t message_size) {
    (void)user_data, (void)node, (void)message, (void)message_size;
    if (input_num != 1 || output_num != 1) {
        return STERNA_STATUS_INVALID_GRAPH_OP;
    }
    outputs[0].ndims = inputs[0].ndims;
    memcpy(outputs[0].dims, inputs[0].dims, sizeof inputs[0].dims);
    return STERNA_STATUS_SUCCESS;
}

static int clip(void *user_data, const sterna_custom_node_t *node, size_t input_num, const sterna_view_t *inputs,
                size_t output_num, const sterna_view_mut_t *outputs, char *message, size_t message_size) {
    (void)user_data, (void)input_num, (void)output_num;
    const float *limit;
    size_t num;
    if (sterna_custom_node_get_attr_f32(node, "limit", &limit, &num) != STERNA_STATUS_SUCCESS || num != 1) {
        snprintf(message, message_size, "the limit is one number");
        return STERNA_STATUS_INVALID_ARGUMENTS;
    }
    int64_t count = 1;
    for (int32_t i = 0; i < inputs[0].ndims; i++) {
        count *= inputs[0].dims[i];
    }
    const float *from = inputs[0].data;
    float *to = outputs[0].data;
    for (int64_t i = 0; i < count; i++) {
        to[i] = from[i] > *limit ? *limit : from[i];
    }
    return STERNA_STATUS_SUCCESS;
}

/* Adds an op without attributes. */
static size_t add(sterna_graph_builder_t *builder, sterna_op_kind_t kind, size_t num, const size_t *operands) {
    sterna_op_t *op;
    size_t value;
    CHECK(sterna_op_create(&op, 0, kind, ""));
    CHECK(sterna_graph_builder_add_op(builder, op, num, operands, STERNA_DATA_TYPE_UNDEF, 1, &value));
    sterna_op_destroy(op);
    return value;
}

int main(void) {
    const int64_t x_dims[] = {STERNA_UNKNOWN_DIM, 2}, w_dims[] = {2, 2};
    const float weights[] = {1, 0, 0, 2}, limit = 5;
    sterna_graph_builder_t *builder;
    size_t x, w, clipped;
    CHECK(sterna_graph_builder_create(&builder));
    CHECK(sterna_graph_builder_add_input(builder, "x", STERNA_DATA_TYPE_F32, 2, x_dims, &x));
    CHECK(sterna_graph_builder_add_constant(builder, "w", STERNA_DATA_TYPE_F32, 2, w_dims, weights, sizeof weights,
                                            NULL, NULL, &w));
    const size_t product = add(builder, STERNA_OP_MATMUL, 2, (const size_t[]){x, w});

    /* The name by which the session finds the function, and what the function is told. */
    sterna_custom_node_t *node;
    CHECK(sterna_custom_node_create(&node, "example::Clip"));
    CHECK(sterna_custom_node_set_attr_f32(node, "limit", &limit, 1));
    sterna_logical_tensor_t result;
    CHECK(sterna_logical_tensor_init(&result, 0, STERNA_DATA_TYPE_F32, -1, STERNA_LAYOUT_TYPE_ANY,
                                     STERNA_TENSOR_PROPERTY_UNDEF));
    const sterna_logical_tensor_t *results[] = {&result};
    CHECK(sterna_graph_builder_add_custom(builder, node, 1, &product, 1, results, &clipped));
    sterna_custom_node_destroy(node);
    CHECK(sterna_graph_builder_add_output(builder, "y", add(builder, STERNA_OP_RELU, 1, &clipped)));
    sterna_model_t *model;
    CHECK(sterna_graph_builder_build(builder, &model));
    sterna_graph_builder_destroy(builder);

    const sterna_custom_op_t op = {sizeof op, "example::Clip", infer, clip, NULL, NULL};
    const sterna_custom_op_t *ops[] = {&op};
    sterna_session_options_t options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.op_num = 1;
    options.ops = ops;
    sterna_engine_t *engine;
    sterna_session_t *session;
    CHECK(sterna_engine_create(&engine, STERNA_ENGINE_KIND_CPU, 0));
    CHECK(sterna_session_create(&session, model, engine, &options));
    sterna_model_destroy(model);

    /* Any number of rows. */
    const float rows[] = {1, -2, 3, 4, -9, 2};
    for (int64_t count = 1; count <= 3; count += 2) {
        const int64_t dims[] = {count, 2};
        float y[6];
        const sterna_named_view_t in = {"x", {rows, STERNA_DATA_TYPE_F32, 2, dims, NULL}};
        const sterna_named_view_mut_t out = {"y", {y, STERNA_DATA_TYPE_F32, 2, dims, NULL}};
        CHECK(sterna_session_run(session, 1, &in, 1, &out));
        for (int64_t i = 0; i < 2 * count; i++) {
            printf("%g%c", y[i], i + 1 < 2 * count ? ' ' : '\n'); /* 1 0, then 1 0 3 5 0 4 */
        }
    }
    sterna_session_destroy(session);
    sterna_engine_destroy(engine);
    return 0;
}
