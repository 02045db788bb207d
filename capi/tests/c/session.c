/* Graphs from values, models and sessions: constants that are lent, ops of the program's own, several shapes, wrong
 * calls, and what is given back. */
#include "check.h"

static void says(const char *text) {
    if (!strstr(sterna_last_error_message(), text)) {
        fprintf(stderr, "the message is \"%s\", without \"%s\"\n", sterna_last_error_message(), text);
        exit(1);
    }
}

static sterna_view_t view(const void *data, int32_t ndims, const int64_t *dims) {
    const sterna_view_t out = {data, STERNA_DATA_TYPE_F32, ndims, dims, NULL};
    return out;
}

/* Adds an op of a kind without attributes. */
static size_t add(sterna_graph_builder_t *builder, sterna_op_kind_t kind, size_t num, const size_t *operands) {
    sterna_op_t *op;
    size_t value;
    OK(sterna_op_create(&op, 0, kind, ""));
    OK(sterna_graph_builder_add_op(builder, op, num, operands, STERNA_DATA_TYPE_UNDEF, 1, &value));
    OK(sterna_op_destroy(op));
    return value;
}

static int released;

static void release(void *user_data) { released += *(int *)user_data; }

static const float weights[] = {1, 0, 0, 2};
static int one = 1, hundred = 100;

/* x · w, what an op of the program's makes of it, and a sum. */
static sterna_model_t *model(void) {
    const int64_t open[] = {STERNA_UNKNOWN_DIM, 2}, square[] = {2, 2};
    sterna_graph_builder_t *builder;
    size_t x, w, scaled, sum;
    OK(sterna_graph_builder_create(&builder));
    OK(sterna_graph_builder_add_input(builder, "x", STERNA_DATA_TYPE_F32, 2, open, &x));
    OK(sterna_graph_builder_add_constant(builder, "w", STERNA_DATA_TYPE_F32, 2, square, weights, sizeof weights,
                                         release, &one, &w));
    const size_t product = add(builder, STERNA_OP_MATMUL, 2, (const size_t[]){x, w});

    sterna_custom_node_t *node;
    const float factor = 3;
    const int64_t list[] = {4, 5};
    OK(sterna_custom_node_create(&node, "my.domain::Scale"));
    OK(sterna_custom_node_set_attr_f32(node, "factor", &factor, 1));
    OK(sterna_custom_node_set_attr_s64(node, "list", list, 2));
    OK(sterna_custom_node_set_attr_str(node, "text", "any"));
    sterna_logical_tensor_t result;
    OK(sterna_logical_tensor_init(&result, 0, STERNA_DATA_TYPE_F32, -1, STERNA_LAYOUT_TYPE_ANY,
                                  STERNA_TENSOR_PROPERTY_UNDEF));
    const sterna_logical_tensor_t *results[] = {&result};
    OK(sterna_graph_builder_add_custom(builder, node, 1, &product, 1, results, &scaled));
    OK(sterna_custom_node_destroy(node));
    sum = add(builder, STERNA_OP_ADD, 2, (const size_t[]){scaled, x});

    ENDS(INVALID_ARGUMENTS, sterna_graph_builder_add_input(builder, "x", STERNA_DATA_TYPE_F32, 2, open, &x));
    says("two inputs are called `x`");
    sterna_op_t *op;
    OK(sterna_op_create(&op, 0, STERNA_OP_MATMUL, ""));
    size_t wrong = 77;
    const int64_t three[] = {3};
    size_t other;
    OK(sterna_graph_builder_add_constant(builder, "other", STERNA_DATA_TYPE_F32, 1, three, weights, 12, NULL, NULL,
                                         &other));
    const size_t clash[] = {w, other};
    ENDS(INVALID_SHAPE, sterna_graph_builder_add_op(builder, op, 2, clash, 0, 1, &wrong));
    says("MatMul(`w` f32 {2,2}, `other` f32 {3})");
    ENDS(INVALID_ARGUMENTS, sterna_graph_builder_add_op(builder, op, 2, (const size_t[]){w, 4711}, 0, 1, &wrong));
    REQUIRE(wrong == 77);
    OK(sterna_op_destroy(op));
    OK(sterna_graph_builder_add_output(builder, "y", sum));
    sterna_model_t *out;
    OK(sterna_graph_builder_build(builder, &out));
    /* The builder is empty, and another graph may be built. */
    OK(sterna_graph_builder_add_input(builder, "x", STERNA_DATA_TYPE_F32, 2, open, &x));
    OK(sterna_graph_builder_destroy(builder));
    return out;
}

struct scale {
    int fails;
    int strays;
};

static int infer(void *user_data, const sterna_custom_node_t *node, size_t input_num,
                 const sterna_logical_tensor_t *inputs, size_t output_num, sterna_logical_tensor_t *outputs,
                 char *message, size_t message_size) {
    (void)user_data;
    (void)node;
    (void)message;
    REQUIRE(input_num == 1 && output_num == 1 && message_size > 100);
    REQUIRE(outputs[0].data_type == STERNA_DATA_TYPE_F32 && outputs[0].ndims == -1);
    outputs[0].ndims = inputs[0].ndims;
    memcpy(outputs[0].dims, inputs[0].dims, sizeof inputs[0].dims);
    return STERNA_STATUS_SUCCESS;
}

static int run(void *user_data, const sterna_custom_node_t *node, size_t input_num, const sterna_view_t *inputs,
               size_t output_num, const sterna_view_mut_t *outputs, char *message, size_t message_size) {
    const float *factor;
    const int64_t *list;
    size_t num;
    char *text;
    REQUIRE(input_num == 1 && output_num == 1 && inputs[0].ndims == 2 && !inputs[0].strides);
    OK(sterna_custom_node_get_attr_f32(node, "factor", &factor, &num));
    REQUIRE(num == 1);
    OK(sterna_custom_node_get_attr_s64(node, "list", &list, &num));
    REQUIRE(num == 2 && list[1] == 5);
    OK(sterna_custom_node_get_attr_str(node, "text", &text));
    REQUIRE(strcmp(text, "any") == 0);
    OK(sterna_string_destroy(text));
    OK(sterna_custom_node_get_op_name(node, &text));
    REQUIRE(strcmp(text, "my.domain::Scale") == 0);
    OK(sterna_string_destroy(text));
    ENDS(INVALID_ARGUMENTS, sterna_custom_node_get_attr_f32(node, "list", &factor, &num));
    says("is s64[], not f32");
    if (((struct scale *)user_data)->fails) {
        snprintf(message, message_size, "no scale today");
        return STERNA_STATUS_RUNTIME_ERROR;
    }
    const int64_t count = inputs[0].dims[0] * inputs[0].dims[1];
    for (int64_t i = 0; i < count; i++) {
        ((float *)outputs[0].data)[i] = *factor * ((const float *)inputs[0].data)[i];
    }
    if (((struct scale *)user_data)->strays) {
        ((float *)outputs[0].data)[count] = 0;
    }
    return STERNA_STATUS_SUCCESS;
}

static void runs(const sterna_session_t *session) {
    const float x[] = {1, 2, 3, 4, 5, 6};
    for (int64_t rows = 0; rows <= 3; rows++) {
        const int64_t dims[] = {rows, 2};
        float y[6] = {0};
        const sterna_named_view_t in = {"x", view(x, 2, dims)};
        const sterna_named_view_mut_t out = {"y", {y, STERNA_DATA_TYPE_F32, 2, dims, NULL}};
        OK(sterna_session_run(session, 1, &in, 1, &out));
        sterna_tensor_t *result;
        sterna_logical_tensor_t desc;
        void *data;
        OK(sterna_session_run_new(session, 1, &in, 1, &result));
        OK(sterna_tensor_get_logical_tensor(result, &desc));
        OK(sterna_tensor_get_data_handle(result, &data));
        REQUIRE(desc.ndims == 2 && desc.dims[0] == rows && desc.dims[1] == 2);
        for (int64_t i = 0; i < 6; i++) {
            const float expected = i < 2 * rows ? 3 * weights[i % 2 * 3] * x[i] + x[i] : 0;
            REQUIRE(y[i] == expected && (i >= 2 * rows || ((float *)data)[i] == expected));
        }
        OK(sterna_tensor_destroy(result));
        size_t memory;
        OK(sterna_session_get_run_memory(session, &memory));
        REQUIRE(rows == 0 || memory >= 8);
    }
}

static void refusals(const sterna_session_t *session) {
    const int64_t dims[] = {1, 2}, wide[] = {1, 3};
    const float x[] = {1, 2, 3};
    float y[2];
    sterna_named_view_t in[] = {{"x", view(x, 2, dims)}, {"x", view(x, 2, dims)}};
    sterna_named_view_mut_t out = {"y", {y, STERNA_DATA_TYPE_F32, 2, dims, NULL}};
    ENDS(INVALID_ARGUMENTS, sterna_session_run(session, 2, in, 1, &out));
    says("input `x` is given twice");
    ENDS(INVALID_ARGUMENTS, sterna_session_run(session, 1, in, 0, NULL));
    says("output `y` is missing");
    in[0].name = "z";
    ENDS(INVALID_ARGUMENTS, sterna_session_run(session, 1, in, 1, &out));
    says("no input is called `z`");
    in[0].name = NULL;
    ENDS(INVALID_ARGUMENTS, sterna_session_run(session, 1, in, 1, &out));
    in[0].name = "x";
    in[0].view.dims = wide;
    REQUIRE(sterna_session_run(session, 1, in, 1, &out) != STERNA_STATUS_SUCCESS);
    says("{1,3}");
    in[0].view.dims = dims;
    in[0].view.data_type = STERNA_DATA_TYPE_S32;
    REQUIRE(sterna_session_run(session, 1, in, 1, &out) != STERNA_STATUS_SUCCESS);
    says("s32");
}

static void ports(const sterna_session_t *session, const sterna_model_t *model) {
    size_t num;
    const char *name;
    sterna_logical_tensor_t desc;
    OK(sterna_session_get_input_num(session, &num));
    REQUIRE(num == 1);
    OK(sterna_session_get_input(session, 0, &name, &desc));
    REQUIRE(strcmp(name, "x") == 0 && desc.dims[0] == STERNA_UNKNOWN_DIM && desc.dims[1] == 2);
    OK(sterna_session_get_output_num(session, &num));
    REQUIRE(num == 1);
    OK(sterna_session_get_output(session, 0, &name, &desc));
    REQUIRE(strcmp(name, "y") == 0);
    OK(sterna_model_get_input_num(model, &num));
    REQUIRE(num == 1);
    OK(sterna_model_get_input(model, 0, &name, &desc));
    REQUIRE(strcmp(name, "x") == 0);
    OK(sterna_model_get_output_num(model, &num));
    OK(sterna_model_get_output(model, 0, &name, &desc));
    REQUIRE(num == 1 && strcmp(name, "y") == 0);
    ENDS(INVALID_ARGUMENTS, sterna_model_get_output(model, 1, &name, &desc));
}

/* A graph of ids, with a constant that is copied. */
static void of_a_graph(sterna_engine_t *engine) {
    sterna_graph_t *graph;
    sterna_logical_tensor_t desc[3];
    sterna_op_t *op;
    sterna_model_t *model;
    sterna_session_t *session;
    float three[] = {3, 3};
    OK(sterna_graph_create(&graph, STERNA_ENGINE_KIND_CPU));
    OK(sterna_op_create(&op, 0, STERNA_OP_MULTIPLY, "product"));
    for (size_t i = 0; i < 3; i++) {
        describe(&desc[i], 7 + i, STERNA_DATA_TYPE_F32, 2);
        OK(i < 2 ? sterna_op_add_input(op, &desc[i]) : sterna_op_add_output(op, &desc[i]));
    }
    OK(sterna_graph_add_op(graph, op));
    OK(sterna_model_create(&model, graph));
    OK(sterna_model_set_constant(model, 8, three, sizeof three, NULL, NULL));
    three[0] = 0;
    OK(sterna_session_create(&session, model, engine, NULL));
    const float x[] = {1, 2};
    float y[2];
    const int64_t dims[] = {2};
    const sterna_named_view_t in = {"7", view(x, 1, dims)};
    const sterna_named_view_mut_t out = {"9", {y, STERNA_DATA_TYPE_F32, 1, dims, NULL}};
    OK(sterna_session_run(session, 1, &in, 1, &out));
    REQUIRE(y[0] == 3 && y[1] == 6);
    OK(sterna_session_destroy(session));
    OK(sterna_model_destroy(model));
    OK(sterna_graph_destroy(graph));
    OK(sterna_op_destroy(op));
}

/* A model for each length: the sum of x and a row of its own length. */
static int source(void *user_data, size_t input_num, const sterna_model_port_t *inputs, sterna_model_t **model,
                  char *message, size_t message_size) {
    (void)user_data;
    REQUIRE(input_num == 1 && strcmp(inputs[0].names[0], "x") == 0 && inputs[0].tensor.ndims == 1);
    const int64_t length = inputs[0].tensor.dims[0];
    if (length > 4) {
        snprintf(message, message_size, "at most 4, not %d", (int)length);
        return STERNA_STATUS_INVALID_SHAPE;
    }
    sterna_graph_builder_t *builder;
    size_t x, row;
    OK(sterna_graph_builder_create(&builder));
    OK(sterna_graph_builder_add_input(builder, "x", STERNA_DATA_TYPE_F32, 1, &length, &x));
    OK(sterna_graph_builder_add_constant(builder, "row", STERNA_DATA_TYPE_F32, 1, &length, weights,
                                         (size_t)length * sizeof(float), NULL, NULL, &row));
    OK(sterna_graph_builder_add_output(builder, "y", add(builder, STERNA_OP_ADD, 2, (const size_t[]){x, row})));
    OK(sterna_graph_builder_build(builder, model));
    OK(sterna_graph_builder_destroy(builder));
    return STERNA_STATUS_SUCCESS;
}

static void of_a_source(sterna_engine_t *engine) {
    sterna_model_port_t x, y;
    const char *const x_names[] = {"x", "another"}, *const y_name = "y";
    sterna_model_t *model;
    sterna_session_t *session;
    const int64_t open[] = {STERNA_UNKNOWN_DIM};
    x.names = x_names;
    x.name_num = 2;
    OK(sterna_logical_tensor_init_with_dims(&x.tensor, 0, STERNA_DATA_TYPE_F32, 1, open, STERNA_LAYOUT_TYPE_STRIDED,
                                            STERNA_TENSOR_PROPERTY_UNDEF));
    y = x;
    y.names = &y_name;
    y.name_num = 1;
    y.tensor.id = 1;
    released = 0;
    OK(sterna_model_create_from_source(&model, 1, &x, 1, &y, source, release, &one));
    OK(sterna_session_create(&session, model, engine, NULL));
    OK(sterna_model_destroy(model));
    const float numbers[] = {1, 2, 3, 4, 5};
    float sums[5];
    for (int64_t length = 1; length <= 5; length++) {
        const sterna_named_view_t in = {"another", view(numbers, 1, &length)};
        const sterna_named_view_mut_t out = {"y", {sums, STERNA_DATA_TYPE_F32, 1, &length, NULL}};
        const sterna_status_t status = sterna_session_run(session, 1, &in, 1, &out);
        if (length == 5) {
            REQUIRE(status == STERNA_STATUS_INVALID_ARGUMENTS);
            says("at most 4, not 5");
        } else {
            REQUIRE(status == STERNA_STATUS_SUCCESS && sums[0] == 2 && (length < 4 || sums[3] == 6));
        }
    }
    OK(sterna_session_destroy(session));
    REQUIRE(released == 1);

    sterna_graph_t *graph;
    sterna_op_t *op;
    OK(sterna_graph_create(&graph, STERNA_ENGINE_KIND_CPU));
    OK(sterna_op_create(&op, 0, STERNA_OP_SQUARE, ""));
    OK(sterna_op_add_input(op, &x.tensor));
    OK(sterna_op_add_output(op, &y.tensor));
    OK(sterna_graph_add_op(graph, op));
    OK(sterna_model_create_with_ports(&model, graph, 1, &x, 1, &y));
    OK(sterna_session_create(&session, model, engine, NULL));
    const int64_t two = 2;
    const sterna_named_view_t in = {"x", view(numbers, 1, &two)};
    const sterna_named_view_mut_t out = {"y", {sums, STERNA_DATA_TYPE_F32, 1, &two, NULL}};
    OK(sterna_session_run(session, 1, &in, 1, &out));
    REQUIRE(sums[0] == 1 && sums[1] == 4);
    x.name_num = 0;
    sterna_model_t *refused;
    ENDS(INVALID_ARGUMENTS, sterna_model_create_with_ports(&refused, graph, 1, &x, 1, &y));
    says("there are 1 names, not 0");
    OK(sterna_session_destroy(session));
    OK(sterna_model_destroy(model));
    OK(sterna_graph_destroy(graph));
    OK(sterna_op_destroy(op));
}

/* Sums and rows from run to run: `total` stays one number, `rows` grows. */
static sterna_model_t *sums(void) {
    const int64_t one_number[] = {1}, open[] = {STERNA_UNKNOWN_DIM, 2}, axes[] = {0};
    sterna_graph_builder_t *builder;
    size_t x, rows, total, all, sum;
    OK(sterna_graph_builder_create(&builder));
    OK(sterna_graph_builder_add_input(builder, "x", STERNA_DATA_TYPE_F32, 2, open, &x));
    OK(sterna_graph_builder_add_input(builder, "past_rows", STERNA_DATA_TYPE_F32, 2, open, &rows));
    OK(sterna_graph_builder_add_input(builder, "total", STERNA_DATA_TYPE_F32, 1, one_number, &total));
    sterna_op_t *op;
    OK(sterna_op_create(&op, 0, STERNA_OP_CONCAT, ""));
    OK(sterna_op_set_attr_s64(op, STERNA_ATTR_AXIS, axes, 1));
    OK(sterna_graph_builder_add_op(builder, op, 2, (const size_t[]){rows, x}, 0, 1, &all));
    OK(sterna_op_destroy(op));
    OK(sterna_op_create(&op, 0, STERNA_OP_REDUCE_SUM, ""));
    OK(sterna_op_set_attr_s64(op, STERNA_ATTR_AXES, axes, 1));
    OK(sterna_graph_builder_add_op(builder, op, 1, &all, 0, 1, &sum));
    OK(sterna_op_destroy(op));
    OK(sterna_graph_builder_add_output(builder, "sum", sum));
    OK(sterna_graph_builder_add_output(builder, "present_rows", all));
    OK(sterna_graph_builder_add_output(builder, "new_total", add(builder, STERNA_OP_SQRT, 1, &total)));
    sterna_model_t *out;
    OK(sterna_graph_builder_build(builder, &out));
    OK(sterna_graph_builder_destroy(builder));
    return out;
}

/* The sum of the rows so far after one more run. */
static float summed(sterna_session_state_t *state, const sterna_session_t *session, const float *row) {
    const int64_t dims[] = {1, 2}, two = 2;
    float sum[2];
    const sterna_named_view_t in = {"x", view(row, 2, dims)};
    const sterna_named_view_mut_t out = {"sum", {sum, STERNA_DATA_TYPE_F32, 1, &two, NULL}};
    OK(sterna_session_state_run(state, session, 1, &in, 1, &out));
    return sum[1];
}

static void states(sterna_engine_t *engine) {
    sterna_model_t *model = sums();
    sterna_state_link_t total;
    memset(&total, 0, sizeof total);
    total.struct_size = sizeof total;
    total.past = "total";
    total.present = "new_total";
    const sterna_state_link_t *links[] = {&total};
    sterna_session_options_t options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.link_num = 1;
    options.links = links;
    options.find_states = 1;
    options.fpmath_mode = STERNA_FPMATH_MODE_STRICT;
    sterna_session_t *session;
    total.has_axis = total.is_fixed = 1;
    ENDS(INVALID_ARGUMENTS, sterna_session_create(&session, model, engine, &options));
    says("fixed");
    total.has_axis = 0;
    sterna_session_state_t *state, *forked;
    OK(sterna_session_create(&session, model, engine, &options));
    OK(sterna_model_destroy(model));
    OK(sterna_session_state_create(&state, session, 0, NULL));
    const float rows[] = {1, 2, 3, 4, 5, 6};
    REQUIRE(summed(state, session, rows) == 2 && summed(state, session, rows + 2) == 6);
    OK(sterna_session_state_fork(state, &forked));
    REQUIRE(summed(state, session, rows + 4) == 12);
    size_t num;
    OK(sterna_session_state_get_row_num(state, &num));
    REQUIRE(num == 3);
    OK(sterna_session_state_get_row_num(forked, &num));
    REQUIRE(num == 2);
    OK(sterna_session_state_trim(forked, 1));
    REQUIRE(summed(forked, session, rows) == 4);
    OK(sterna_session_state_reset(state));
    REQUIRE(summed(state, session, rows) == 2);
    OK(sterna_session_state_get_memory(state, &num));
    REQUIRE(num >= 12);

    /* A prefix that was there before, and outputs in new tensors. */
    const int64_t two_rows[] = {2, 2}, one_row[] = {1, 2};
    const sterna_view_t prefix = view(rows, 2, two_rows);
    OK(sterna_session_state_set(state, "past_rows", &prefix));
    const sterna_named_view_t in = {"x", view(rows, 2, one_row)};
    sterna_tensor_t *outputs[3];
    OK(sterna_session_state_run_new(state, session, 1, &in, 3, outputs));
    void *data;
    REQUIRE(outputs[0] && !outputs[1] && !outputs[2]);
    OK(sterna_tensor_get_data_handle(outputs[0], &data));
    REQUIRE(((float *)data)[1] == 8);
    OK(sterna_tensor_destroy(outputs[0]));

    const sterna_named_dims_t dims[] = {{"x", 2, one_row}, {"past_rows", 2, two_rows}, {"total", 1, one_row}};
    sterna_logical_tensor_t descs[3];
    OK(sterna_session_get_output_logical_tensors(session, 3, dims, 3, descs));
    REQUIRE(descs[1].ndims == 2 && descs[1].dims[0] == 3 && descs[0].dims[0] == 2);
    ENDS(INVALID_ARGUMENTS, sterna_session_get_output_logical_tensors(session, 3, dims, 2, descs));
    OK(sterna_session_destroy(session));
    OK(sterna_session_state_destroy(forked));
    OK(sterna_session_state_destroy(state));
}

int main(void) {
    sterna_engine_t *engine;
    OK(make_engine(&engine, NULL, 2));
    sterna_model_t *whole = model();
    sterna_session_t *session;
    ENDS(UNIMPLEMENTED, sterna_session_create(&session, whole, engine, NULL));
    says("my.domain::Scale");

    struct scale scale = {0};
    sterna_custom_op_t op = {sizeof op, "my.domain::Scale", infer, run, &scale, NULL};
    const sterna_custom_op_t *ops[] = {&op};
    sterna_session_options_t options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.shapes = 2;
    options.op_num = 1;
    options.ops = ops;
    OK(sterna_session_create(&session, whole, engine, &options));
    runs(session);
    refusals(session);
    ports(session, whole);
    scale.fails = 1;
    const int64_t dims[] = {1, 2};
    float y[2];
    const sterna_named_view_t in = {"x", view(weights, 2, dims)};
    const sterna_named_view_mut_t out = {"y", {y, STERNA_DATA_TYPE_F32, 2, dims, NULL}};
    ENDS(RUNTIME_ERROR, sterna_session_run(session, 1, &in, 1, &out));
    says("no scale today");
    scale.fails = 0;
    scale.strays = 1;
    ENDS(RUNTIME_ERROR, sterna_session_run(session, 1, &in, 1, &out));
    says("it wrote beside the memory of output 0");
    scale.strays = 0;
    OK(sterna_session_run(session, 1, &in, 1, &out));
    OK(sterna_session_destroy(session));

    /* What is given back: the op with its session, the constant with the last that has it. */
    op.user_data = &hundred;
    op.release = release;
    op.run = NULL;
    ENDS(INVALID_ARGUMENTS, sterna_session_create(&session, whole, engine, &options));
    REQUIRE(released == 0);
    op.run = run;
    OK(sterna_session_create(&session, whole, engine, &options));
    OK(sterna_model_destroy(whole));
    REQUIRE(released == 0);
    OK(sterna_session_destroy(session));
    REQUIRE(released == 101);
    of_a_graph(engine);
    of_a_source(engine);
    states(engine);
    OK(sterna_engine_destroy(engine));
    return 0;
}
