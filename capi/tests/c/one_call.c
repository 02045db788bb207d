/* A select in one call; inputs on constant memory; ports by name; and what messages say of wrong calls. */
#include "check.h"

static void says(const char *text) {
    if (!strstr(sterna_last_error_message(), text)) {
        fprintf(stderr, "the message is \"%s\", without \"%s\"\n", sterna_last_error_message(), text);
        exit(1);
    }
}

static sterna_view_t view(const void *data, sterna_data_type_t type, int32_t ndims, const int64_t *dims) {
    const sterna_view_t out = {data, type, ndims, dims, NULL};
    return out;
}

static void one_call(sterna_engine_t *engine) {
    const int64_t dims[] = {2, 3}, columns[] = {1, 2}, row[] = {2, 1};
    const uint8_t mask[] = {1, 0, 7};
    const int16_t numbers[] = {1, 2, 3, 4, 5, 6}, none = -1;
    const sterna_view_t cond = view(mask, STERNA_DATA_TYPE_BOOLEAN, 1, &dims[1]),
                        then = view(numbers, STERNA_DATA_TYPE_S16, 2, dims),
                        otherwise = view(&none, STERNA_DATA_TYPE_S16, 0, NULL);
    int16_t result[6] = {0};
    sterna_view_mut_t dst = {result, STERNA_DATA_TYPE_S16, 2, dims, NULL};
    for (int twice = 0; twice < 2; twice++) {
        const int16_t expected[] = {1, -1, 3, 4, -1, 6};
        memset(result, 0, sizeof result);
        OK(sterna_select(&cond, &then, &otherwise, &dst));
        REQUIRE(memcmp(result, expected, sizeof result) == 0);
    }

    /* Column by column. */
    const int16_t turned[] = {1, 4, -1, -1, 3, 6};
    dst.strides = columns;
    OK(sterna_select_with(engine, "numpy", -1, &cond, &then, &otherwise, &dst));
    REQUIRE(memcmp(result, turned, sizeof result) == 0);

    /* In place of `then`. */
    int16_t values[] = {1, 2, 3, 4, 5, 6};
    const int16_t kept[] = {1, -1, 3, 4, -1, 6};
    const sterna_view_t then_here = view(values, STERNA_DATA_TYPE_S16, 2, dims);
    const sterna_view_mut_t here = {values, STERNA_DATA_TYPE_S16, 2, dims, NULL},
                            shifted = {values + 1, STERNA_DATA_TYPE_S16, 1, &dims[1], NULL};
    OK(sterna_select(&cond, &then_here, &otherwise, &here));
    REQUIRE(memcmp(values, kept, sizeof values) == 0);
    const sterna_view_t first_row = view(values, STERNA_DATA_TYPE_S16, 1, &dims[1]);
    ENDS(INVALID_ARGUMENTS, sterna_select(&cond, &first_row, &otherwise, &shifted));
    says("overlaps");

    /* A condition that enlarges the result. */
    const uint8_t rows[] = {1, 0};
    const sterna_view_t column = view(rows, STERNA_DATA_TYPE_BOOLEAN, 2, row),
                        line = view(numbers, STERNA_DATA_TYPE_S16, 1, &dims[1]);
    int32_t ndims = 0;
    int64_t found[STERNA_MAX_NDIMS];
    OK(sterna_select_get_dims("multidirectional", -1, &column, &line, &otherwise, &ndims, found));
    REQUIRE(ndims == 2 && found[0] == 2 && found[1] == 3);
    ENDS(INVALID_SHAPE, sterna_select_get_dims(NULL, -1, &column, &line, &otherwise, &ndims, found));
    dst.strides = NULL;
    OK(sterna_select_with(NULL, "multidirectional", -1, &column, &line, &otherwise, &dst));
    const int16_t enlarged[] = {1, 2, 3, -1, -1, -1};
    REQUIRE(memcmp(result, enlarged, sizeof result) == 0);

    /* An empty result touches nothing. */
    const int64_t zero = 0;
    const sterna_view_t empty = view(NULL, STERNA_DATA_TYPE_S16, 1, &zero);
    const sterna_view_mut_t nowhere = {NULL, STERNA_DATA_TYPE_S16, 1, &zero, NULL};
    const sterna_view_t always = view(rows, STERNA_DATA_TYPE_BOOLEAN, 0, NULL);
    OK(sterna_select(&always, &empty, &empty, &nowhere));

    /* What is wrong is named. */
    sterna_view_t wrong = then;
    wrong.ndims = 13;
    ENDS(INVALID_ARGUMENTS, sterna_select(&cond, &wrong, &otherwise, &dst));
    says("`then`: 13 is no rank");
    wrong = cond;
    wrong.data_type = STERNA_DATA_TYPE_U8;
    ENDS(INVALID_GRAPH_OP, sterna_select(&wrong, &then, &otherwise, &dst));
    says("`cond` (tensor 0) is u8; it must be boolean");
    wrong = otherwise;
    wrong.data_type = STERNA_DATA_TYPE_F32;
    ENDS(INVALID_GRAPH_OP, sterna_select(&cond, &then, &wrong, &dst));
    says("`else` (tensor 2) is f32");
    wrong = then;
    wrong.data = NULL;
    ENDS(INVALID_ARGUMENTS, sterna_select(&cond, &wrong, &otherwise, &dst));
    says("tensor 1 has no memory");
    ENDS(INVALID_SHAPE, sterna_select(&cond, &then, &otherwise, &shifted));
    ENDS(INVALID_ARGUMENTS, sterna_select_with(NULL, "numpi", -1, &cond, &then, &otherwise, &dst));
    says("did you mean \"numpy\"?");
    ENDS(INVALID_GRAPH_OP, sterna_select_with(NULL, NULL, 1, &cond, &then, &otherwise, &dst));
    says("`axis` goes with auto_broadcast = pdpd");
}

static void constant_memory(sterna_engine_t *engine) {
    struct select s;
    compile_select(&s, engine, 6, 1);
    const uint8_t mask[] = {1, 0, 0, 1, 0, 0};
    const float then[] = {0, 1, 2, 3, 4, 5}, otherwise[] = {0, -1, -2, -3, -4, -5};
    const void *memory[] = {mask, then, otherwise};
    sterna_engine_t *same;
    OK(sterna_compiled_partition_get_engine(s.compiled, &same));
    REQUIRE(same == engine);
    for (int i = COND; i <= ELSE; i++) {
        OK(sterna_tensor_create_const(&s.tensor[i], &s.desc[i], same, memory[i]));
    }
    sterna_logical_tensor_t dst;
    OK(sterna_compiled_partition_query_logical_tensor_by_name(s.compiled, "dst", &dst));
    REQUIRE(dst.id == DST);
    OK(sterna_tensor_create(&s.tensor[DST], &dst, same, STERNA_MEMORY_ALLOCATE));
    OK(sterna_tensor_get_data_handle(s.tensor[DST], &s.memory[DST]));
    OK(execute_select(&s));
    check_result(&s, 6);

    sterna_tensor_t *constant, *made = s.tensor[DST];
    OK(sterna_tensor_create_const(&constant, &dst, same, then));
    s.tensor[DST] = constant;
    ENDS(INVALID_ARGUMENTS, execute_select(&s));
    says("output tensor 3 is made on constant memory");
    s.tensor[DST] = made;
    OK(sterna_tensor_destroy(constant));
    ENDS(INVALID_ARGUMENTS, sterna_tensor_create_const(&constant, &dst, same, STERNA_MEMORY_ALLOCATE));

    /* Which pointer is null. */
    const sterna_tensor_t *inputs[] = {s.tensor[COND], NULL, s.tensor[ELSE]}, *outputs[] = {s.tensor[DST]};
    ENDS(INVALID_ARGUMENTS, sterna_compiled_partition_execute(s.compiled, s.stream, 3, inputs, 1, outputs));
    says("`inputs[1]` is null");
    ENDS(INVALID_ARGUMENTS, sterna_compiled_partition_query_logical_tensor_by_name(s.compiled, "els", &dst));
    says("did you mean \"else\"?");
    destroy_select(&s);
}

/* Each call says which call comes before it. */
static void order_of_calls(void) {
    struct select s;
    sterna_engine_t *engine;
    OK(sterna_engine_create(&engine, STERNA_ENGINE_KIND_CPU, 0));
    compile_select(&s, engine, 6, 1);
    sterna_graph_t *graph;
    sterna_partition_t *partition;
    OK(sterna_graph_create(&graph, STERNA_ENGINE_KIND_CPU));
    OK(sterna_graph_add_op(graph, s.op));
    ENDS(INVALID_GRAPH, sterna_graph_filter(graph, STERNA_PARTITION_POLICY_FUSION));
    says("call `finalize` first");
    OK(sterna_graph_finalize(graph));
    ENDS(INVALID_ARGUMENTS, sterna_graph_get_partitions(graph, 1, &partition));
    says("call `sterna_graph_filter` first");
    sterna_compiled_partition_t *empty;
    size_t bytes;
    OK(sterna_compiled_partition_create(&empty, s.partition));
    ENDS(INVALID_ARGUMENTS, sterna_compiled_partition_get_bytes_moved(empty, &bytes));
    says("call `sterna_partition_compile` first");
    OK(sterna_compiled_partition_destroy(empty));
    OK(sterna_graph_destroy(graph));
    destroy_select(&s);
    OK(sterna_engine_destroy(engine));
}

int main(void) {
    sterna_engine_t *engine;
    OK(make_engine(&engine, NULL, 2));
    one_call(engine);
    constant_memory(engine);
    order_of_calls();
    OK(sterna_engine_destroy(engine));
    return 0;
}
