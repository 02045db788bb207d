/* What the functions promise beyond running: the corners of each, in one place a noun. */
#include "check.h"

static void logical_tensors(void) {
    sterna_logical_tensor_t a, b;
    /* Only the rank is known. */
    OK(sterna_logical_tensor_init(&a, 7, STERNA_DATA_TYPE_F32, 2, STERNA_LAYOUT_TYPE_STRIDED,
                                  STERNA_TENSOR_PROPERTY_UNDEF));
    for (int i = 0; i < STERNA_MAX_NDIMS; i++) {
        REQUIRE(a.dims[i] == STERNA_UNKNOWN_DIM && a.layout.strides[i] == STERNA_UNKNOWN_DIM);
    }
    REQUIRE(a.id == 7 && a.ndims == 2);
    OK(sterna_logical_tensor_init(&a, 7, STERNA_DATA_TYPE_F32, 0, STERNA_LAYOUT_TYPE_ANY, 0));
    for (int i = 0; i < STERNA_MAX_NDIMS; i++) {
        REQUIRE(a.dims[i] == 0 && a.layout.strides[i] == 0);
    }
    OK(sterna_logical_tensor_init(&a, 7, STERNA_DATA_TYPE_F32, -1, STERNA_LAYOUT_TYPE_STRIDED, 0));
    size_t size;
    OK(sterna_logical_tensor_get_mem_size(&a, &size));
    REQUIRE(size == 0);

    /* Dims are known; a dim of 0 counts as 1 in the strides. */
    const int64_t dims[] = {2, 0, 4}, unknown[] = {2, STERNA_UNKNOWN_DIM};
    OK(sterna_logical_tensor_init_with_dims(&a, 1, STERNA_DATA_TYPE_F16, 3, dims, STERNA_LAYOUT_TYPE_STRIDED, 0));
    REQUIRE(a.layout.strides[0] == 4 && a.layout.strides[1] == 4 && a.layout.strides[2] == 1);
    REQUIRE(a.dims[2] == 4 && a.dims[3] == 0 && a.layout.strides[3] == 0);
    OK(sterna_logical_tensor_get_mem_size(&a, &size));
    REQUIRE(size == 0);
    OK(sterna_logical_tensor_init_with_dims(&a, 1, STERNA_DATA_TYPE_F16, 3, dims, STERNA_LAYOUT_TYPE_ANY, 0));
    REQUIRE(a.layout.strides[0] == STERNA_UNKNOWN_DIM && a.layout.strides[11] == STERNA_UNKNOWN_DIM);
    OK(sterna_logical_tensor_get_mem_size(&a, &size));
    REQUIRE(size == SIZE_MAX);
    OK(sterna_logical_tensor_init_with_dims(&a, 1, STERNA_DATA_TYPE_F16, 2, unknown, STERNA_LAYOUT_TYPE_STRIDED, 0));
    REQUIRE(a.layout.strides[0] == STERNA_UNKNOWN_DIM && a.dims[2] == 0);
    OK(sterna_logical_tensor_init_with_dims(&a, 1, STERNA_DATA_TYPE_F16, 0, NULL, STERNA_LAYOUT_TYPE_STRIDED, 0));
    OK(sterna_logical_tensor_get_mem_size(&a, &size));
    REQUIRE(size == 2);
    /* Its own dims are the dims. */
    const int64_t matrix[] = {3, 5};
    OK(sterna_logical_tensor_init_with_dims(&a, 1, STERNA_DATA_TYPE_F16, 2, matrix, STERNA_LAYOUT_TYPE_ANY, 0));
    OK(sterna_logical_tensor_init_with_dims(&a, 1, a.data_type, a.ndims, a.dims, STERNA_LAYOUT_TYPE_STRIDED, 0));
    REQUIRE(a.dims[0] == 3 && a.dims[1] == 5 && a.layout.strides[0] == 5);

    const int64_t negative[] = {-3}, huge[] = {INT64_MAX, INT64_MAX};
    ENDS(INVALID_ARGUMENTS, sterna_logical_tensor_init_with_dims(&a, 1, 3, 1, negative, STERNA_LAYOUT_TYPE_STRIDED, 0));
    ENDS(INVALID_ARGUMENTS, sterna_logical_tensor_init_with_dims(&a, 1, 3, 2, huge, STERNA_LAYOUT_TYPE_STRIDED, 0));
    ENDS(INVALID_ARGUMENTS, sterna_logical_tensor_init_with_dims(&a, 1, 3, -1, matrix, STERNA_LAYOUT_TYPE_STRIDED, 0));
    ENDS(INVALID_ARGUMENTS, sterna_logical_tensor_init_with_strides(&a, 1, 3, 1, matrix, negative, 0));
    ENDS(INVALID_ARGUMENTS, sterna_logical_tensor_init(&a, 1, STERNA_DATA_TYPE_F64, 0, STERNA_LAYOUT_TYPE_STRIDED,
                                                       STERNA_TENSOR_PROPERTY_HOST_SCALAR));
    REQUIRE(a.ndims == 2 && a.dims[0] == 3); /* what failed wrote nothing */

    uint8_t equal;
    b = a;
    OK(sterna_logical_tensor_is_equal(&a, &b, &equal));
    REQUIRE(equal == 1);
    OK(sterna_logical_tensor_is_equal(&a, &a, &equal));
    REQUIRE(equal == 1);
    b.layout.strides[0]++;
    OK(sterna_logical_tensor_is_equal(&a, &b, &equal));
    REQUIRE(equal == 0);
    b = a;
    b.dims[11] = 9; /* behind the last dim */
    OK(sterna_logical_tensor_is_equal(&a, &b, &equal));
    REQUIRE(equal == 1);
}

static void tensors(sterna_engine_t *engine) {
    sterna_logical_tensor_t desc, scalar, read;
    describe(&desc, 4, STERNA_DATA_TYPE_S32, 5);
    OK(sterna_logical_tensor_init(&scalar, 5, STERNA_DATA_TYPE_S64, 0, STERNA_LAYOUT_TYPE_STRIDED,
                                  STERNA_TENSOR_PROPERTY_HOST_SCALAR));
    int32_t memory[5] = {0};
    int64_t value = 11;
    void *handle;
    sterna_tensor_t *tensor;
    sterna_engine_t *found;

    OK(sterna_tensor_create(&tensor, &desc, engine, NULL));
    OK(sterna_tensor_get_data_handle(tensor, &handle));
    REQUIRE(handle == NULL);
    OK(sterna_tensor_set_data_handle(tensor, memory));
    OK(sterna_tensor_get_data_handle(tensor, &handle));
    REQUIRE(handle == memory);
    OK(sterna_tensor_set_data_handle(tensor, STERNA_MEMORY_ALLOCATE));
    OK(sterna_tensor_get_data_handle(tensor, &handle));
    REQUIRE(handle != NULL && (uintptr_t)handle % 64 == 0 && ((int32_t *)handle)[4] == 0);
    OK(sterna_tensor_set_data_handle(tensor, handle)); /* its own memory stays its own */
    ((int32_t *)handle)[4] = 1;
    OK(sterna_tensor_set_data_handle(tensor, NULL));
    OK(sterna_tensor_get_engine(tensor, &found));
    REQUIRE(found == engine);
    OK(sterna_tensor_get_logical_tensor(tensor, &read));
    uint8_t equal;
    OK(sterna_logical_tensor_is_equal(&read, &desc, &equal));
    REQUIRE(equal == 1 && read.dims[1] == 0 && read.layout.strides[0] == 1 && read.layout.strides[1] == 0);
    OK(sterna_tensor_destroy(tensor));

    ENDS(INVALID_ARGUMENTS, sterna_tensor_create(&tensor, &desc, NULL, memory));
    ENDS(INVALID_ARGUMENTS, sterna_tensor_create(&tensor, &scalar, engine, &value));
    ENDS(INVALID_ARGUMENTS, sterna_tensor_create_scalar(&tensor, &desc, memory));
    ENDS(INVALID_ARGUMENTS, sterna_tensor_create_scalar(&tensor, &scalar, NULL));
    ENDS(INVALID_ARGUMENTS, sterna_tensor_create_scalar(&tensor, &scalar, STERNA_MEMORY_ALLOCATE));
    OK(sterna_tensor_create_scalar(&tensor, &scalar, &value));
    OK(sterna_tensor_get_data_handle(tensor, &handle));
    OK(sterna_tensor_get_engine(tensor, &found));
    REQUIRE(handle == NULL && found == NULL);
    ENDS(INVALID_ARGUMENTS, sterna_tensor_set_data_handle(tensor, &value));
    OK(sterna_tensor_destroy(tensor));
    OK(sterna_tensor_destroy(NULL));
}

static void ops(void) {
    sterna_op_t *op;
    ENDS(INVALID_ARGUMENTS, sterna_op_create(&op, 1, 78 * 78, "name"));
    ENDS(INVALID_ARGUMENTS, sterna_op_create(&op, 1, STERNA_OP_SELECT, "\xff\xfe"));
    OK(sterna_op_create(&op, 3, STERNA_OP_SELECT, ""));
    size_t id;
    sterna_op_kind_t kind;
    OK(sterna_op_get_id(op, &id));
    OK(sterna_op_get_kind(op, &kind));
    REQUIRE(id == 3 && kind == STERNA_OP_SELECT);
    REQUIRE(strcmp(sterna_op_kind_string(kind), "Select") == 0 && sterna_op_kind_string(-1) == NULL);
    const float numbers[] = {1, 2};
    const int64_t integers[] = {1, 2};
    const uint8_t truth = 7;
    OK(sterna_op_set_attr_f32(op, STERNA_ATTR_SCALES, numbers, 2));
    OK(sterna_op_set_attr_f32(op, STERNA_ATTR_ALPHA, numbers, 1));
    ENDS(INVALID_ARGUMENTS, sterna_op_set_attr_f32(op, STERNA_ATTR_ALPHA, numbers, 2));
    OK(sterna_op_set_attr_s64(op, STERNA_ATTR_STRIDES, integers, 2));
    OK(sterna_op_set_attr_s64(op, STERNA_ATTR_STRIDES, NULL, 0));
    ENDS(INVALID_ARGUMENTS, sterna_op_set_attr_s64(op, STERNA_ATTR_AXIS, integers, 0));
    OK(sterna_op_set_attr_bool(op, STERNA_ATTR_KEEP_DIMS, &truth, 1));
    ENDS(INVALID_ARGUMENTS, sterna_op_set_attr_bool(op, STERNA_ATTR_KEEP_DIMS, &truth, 2));
    ENDS(INVALID_ARGUMENTS, sterna_op_set_attr_str(op, STERNA_ATTR_MODE, "word", 0));
    OK(sterna_op_set_attr_str(op, STERNA_ATTR_MODE, "word", 999)); /* up to its zero */
    ENDS(INVALID_ARGUMENTS, sterna_op_set_attr_str(op, STERNA_ATTR_MODE, "\x80", 1));
    ENDS(INVALID_ARGUMENTS, sterna_op_set_attr_str(op, 255, "word", 4));
    OK(sterna_op_destroy(op));
    OK(sterna_op_destroy(NULL));
}

/* Select and ReLU one after the other. */
static sterna_graph_t *two_ops(void) {
    sterna_graph_t *graph;
    OK(sterna_graph_create(&graph, STERNA_ENGINE_KIND_CPU));
    sterna_logical_tensor_t desc[5];
    sterna_op_t *op;
    describe(&desc[COND], COND, STERNA_DATA_TYPE_BOOLEAN, 4);
    for (size_t i = 1; i < 5; i++) {
        describe(&desc[i], i, STERNA_DATA_TYPE_F32, 4);
    }
    OK(sterna_op_create(&op, 10, STERNA_OP_SELECT, "chooses"));
    for (int i = COND; i <= ELSE; i++) {
        OK(sterna_op_add_input(op, &desc[i]));
    }
    OK(sterna_op_add_output(op, &desc[DST]));
    OK(sterna_graph_add_op(graph, op));
    ENDS(INVALID_GRAPH_OP, sterna_graph_add_op(graph, op)); /* its id is taken */
    OK(sterna_op_destroy(op));
    OK(sterna_op_create(&op, 11, STERNA_OP_BATCH_NORM_INFERENCE, "misses inputs"));
    ENDS(INVALID_GRAPH_OP, sterna_graph_add_op(graph, op));
    REQUIRE(strstr(sterna_last_error_message(), "BatchNormInference (op 11)") != NULL);
    OK(sterna_op_destroy(op));
    OK(sterna_op_create(&op, 12, STERNA_OP_WILDCARD, ""));
    OK(sterna_op_add_input(op, &desc[DST]));
    OK(sterna_op_add_input(op, &desc[DST]));
    OK(sterna_op_add_output(op, &desc[4]));
    OK(sterna_graph_add_op(graph, op));
    OK(sterna_op_destroy(op));
    return graph;
}

static void graphs(sterna_engine_t *engine) {
    sterna_graph_t *graph;
    ENDS(INVALID_ARGUMENTS, sterna_graph_create(&graph, STERNA_ENGINE_KIND_GPU));
    OK(sterna_graph_create_with_fpmath_mode(&graph, STERNA_ENGINE_KIND_CPU, STERNA_FPMATH_MODE_TF32));
    sterna_fpmath_mode_t mode;
    int to_int;
    OK(sterna_graph_get_fpmath_mode(graph, &mode, &to_int));
    REQUIRE(mode == STERNA_FPMATH_MODE_TF32 && to_int == 0);
    OK(sterna_graph_set_fpmath_mode(graph, STERNA_FPMATH_MODE_ANY, 1));
    OK(sterna_graph_get_fpmath_mode(graph, &mode, &to_int));
    REQUIRE(mode == STERNA_FPMATH_MODE_ANY && to_int == 1);
    OK(sterna_graph_destroy(graph));

    OK(sterna_fpmath_mode_set_default(STERNA_FPMATH_MODE_BF16));
    graph = two_ops();
    OK(sterna_graph_get_fpmath_mode(graph, &mode, &to_int));
    REQUIRE(mode == STERNA_FPMATH_MODE_BF16);
    OK(sterna_fpmath_mode_set_default(STERNA_FPMATH_MODE_STRICT));

    uint8_t yes;
    size_t count;
    char *text;
    ENDS(INVALID_GRAPH, sterna_graph_filter(graph, STERNA_PARTITION_POLICY_FUSION));
    ENDS(INVALID_GRAPH, sterna_graph_explain(graph, 10, &text));
    OK(sterna_graph_get_partition_num(graph, &count));
    OK(sterna_graph_is_finalized(graph, &yes));
    REQUIRE(count == 0 && yes == 0);
    OK(sterna_graph_finalize(graph));
    OK(sterna_graph_finalize(graph));
    OK(sterna_graph_is_finalized(graph, &yes));
    REQUIRE(yes == 1);
    ENDS(INVALID_GRAPH, sterna_graph_set_fpmath_mode(graph, STERNA_FPMATH_MODE_ANY, 0));
    ENDS(INVALID_ARGUMENTS, sterna_graph_filter(graph, 0));
    OK(sterna_graph_filter(graph, STERNA_PARTITION_POLICY_DEBUG));
    OK(sterna_graph_filter(graph, STERNA_PARTITION_POLICY_FUSION));
    OK(sterna_graph_get_partition_num(graph, &count));
    REQUIRE(count == 2);
    sterna_partition_t *partitions[3];
    ENDS(INVALID_ARGUMENTS, sterna_graph_get_partitions(graph, 3, partitions));
    ENDS(INVALID_ARGUMENTS, sterna_graph_get_partitions(graph, 1, partitions));
    OK(sterna_graph_get_partitions(graph, 2, partitions));

    /* Why: the op that nothing runs, and the one that nothing joins. */
    OK(sterna_graph_explain(graph, 10, &text));
    REQUIRE(strstr(text, "Select (op 10)") != NULL);
    OK(sterna_string_destroy(text));
    ENDS(INVALID_ARGUMENTS, sterna_graph_explain(graph, 99, &text));
    OK(sterna_partition_is_supported(partitions[0], &yes));
    OK(sterna_partition_get_unsupported_reason(partitions[0], &text));
    REQUIRE(yes == 1 && text == NULL);
    OK(sterna_partition_is_supported(partitions[1], &yes));
    OK(sterna_partition_get_unsupported_reason(partitions[1], &text));
    REQUIRE(yes == 0 && strstr(text, "Wildcard") != NULL);
    OK(sterna_string_destroy(text));
    sterna_compiled_partition_t *compiled;
    OK(sterna_compiled_partition_create(&compiled, partitions[1]));
    sterna_logical_tensor_t dst, last;
    OK(sterna_partition_get_input_ports(partitions[1], 1, &dst)); /* listed once */
    OK(sterna_partition_get_output_ports(partitions[1], 1, &last));
    REQUIRE(dst.id == DST && last.id == 4);
    const sterna_logical_tensor_t *in[] = {&dst}, *out[] = {&last};
    ENDS(INVALID_ARGUMENTS, sterna_partition_compile(partitions[1], compiled, 1, in, 1, out, engine));
    REQUIRE(strstr(sterna_last_error_message(), "not supported") != NULL);
    ENDS(INVALID_ARGUMENTS, sterna_compiled_partition_query_logical_tensor(compiled, DST, &dst)); /* not compiled */
    OK(sterna_compiled_partition_destroy(compiled));

    /* What the partitions are, once the graph is gone. */
    OK(sterna_graph_destroy(graph));
    size_t ids[2];
    sterna_engine_kind_t kind;
    OK(sterna_partition_get_op_num(partitions[0], &count));
    REQUIRE(count == 1);
    OK(sterna_partition_get_ops(partitions[0], 1, ids));
    REQUIRE(ids[0] == 10);
    ENDS(INVALID_ARGUMENTS, sterna_partition_get_ops(partitions[0], 2, ids));
    OK(sterna_partition_get_id(partitions[1], &count));
    REQUIRE(count == 1);
    OK(sterna_partition_get_input_ports_num(partitions[0], &count));
    REQUIRE(count == 3);
    OK(sterna_partition_get_output_ports_num(partitions[0], &count));
    REQUIRE(count == 1);
    OK(sterna_partition_get_engine_kind(partitions[0], &kind));
    REQUIRE(kind == STERNA_ENGINE_KIND_CPU);
    OK(sterna_partition_destroy(partitions[0]));
    OK(sterna_partition_destroy(partitions[1]));
}

static void json(void) {
    sterna_graph_t *graph = two_ops(), *again;
    char *text, *text_again;
    size_t length;
    OK(sterna_graph_to_json(graph, &text, &length));
    REQUIRE(length == strlen(text) && strstr(text, "\"Select\"") != NULL);
    OK(sterna_graph_from_json(&again, text, length));
    OK(sterna_graph_to_json(again, &text_again, NULL));
    REQUIRE(strcmp(text, text_again) == 0);
    OK(sterna_graph_finalize(again));
    ENDS(INVALID_ARGUMENTS, sterna_graph_from_json(&again, text, length - 2));
    REQUIRE(strstr(sterna_last_error_message(), "line ") != NULL);
    ENDS(INVALID_ARGUMENTS, sterna_graph_from_json(&again, "", 0));
    ENDS(INVALID_ARGUMENTS, sterna_graph_from_json(&again, "\xff", 1));
    OK(sterna_string_destroy(text));
    OK(sterna_string_destroy(text_again));
    OK(sterna_string_destroy(NULL));
    OK(sterna_graph_destroy(graph));
    OK(sterna_graph_destroy(again));
}

static void engines_and_streams(void) {
    sterna_engine_t *engine, *found;
    sterna_stream_t *stream;
    size_t threads;
    sterna_level_t level;
    sterna_engine_kind_t kind;
    REQUIRE(sterna_engine_get_count(STERNA_ENGINE_KIND_CPU) == 1 && sterna_engine_get_count(STERNA_ENGINE_KIND_GPU) == 0);
    REQUIRE(sterna_engine_get_count(STERNA_ENGINE_KIND_ANY) == 0);
    ENDS(INVALID_ARGUMENTS, sterna_engine_create(&engine, STERNA_ENGINE_KIND_GPU, 0));
    ENDS(INVALID_ARGUMENTS, sterna_engine_create(&engine, STERNA_ENGINE_KIND_CPU, 1));
    sterna_engine_options_t options;
    memset(&options, 0, sizeof options);
    ENDS(INVALID_ARGUMENTS, sterna_engine_create_with_options(&engine, &options)); /* without its size */
    struct {
        sterna_engine_options_t known;
        size_t later;
    } larger = {.later = 0};
    larger.known.struct_size = sizeof larger;
    larger.known.threads = 1;
    for (size_t i = 0; i < 2; i++) {
        larger.later = 1;
        ENDS(UNIMPLEMENTED, sterna_engine_create_with_options(&engine, &larger.known));
        larger.later = 0;
        OK(i == 0 ? make_engine(&engine, NULL, 1) : sterna_engine_create_with_options(&engine, &larger.known));
        OK(sterna_engine_get_threads(engine, &threads));
        REQUIRE(threads == 1);
        OK(sterna_engine_get_level(engine, &level));
        REQUIRE(sterna_level_string(level) != NULL && sterna_level_string(-1) == NULL);
        OK(sterna_engine_get_kind(engine, &kind));
        REQUIRE(kind == STERNA_ENGINE_KIND_CPU);
        ENDS(UNIMPLEMENTED, sterna_stream_create(&stream, engine, STERNA_STREAM_FLAG_PROFILING));
        ENDS(INVALID_ARGUMENTS, sterna_stream_create(&stream, engine, 8));
        ENDS(INVALID_ARGUMENTS, sterna_stream_create(&stream, engine, 0));
        OK(sterna_stream_create(&stream, engine, STERNA_STREAM_FLAG_IN_ORDER | STERNA_STREAM_FLAG_OUT_OF_ORDER));
        OK(sterna_stream_get_engine(stream, &found));
        REQUIRE(found == engine);
        OK(sterna_engine_destroy(engine));
        OK(sterna_stream_wait(stream)); /* which needs no handle of the engine */
        OK(sterna_stream_destroy(stream));
    }
    /* An allocator without functions is the system's. */
    sterna_allocator_t *allocator;
    OK(sterna_allocator_create(&allocator, NULL, NULL));
    OK(make_engine(&engine, allocator, 0));
    OK(sterna_allocator_destroy(allocator));
    struct select s;
    compile_select(&s, engine, 9, 2);
    OK(make_tensors(&s, 9, 2));
    OK(execute_select(&s));
    check_result(&s, 9);
    destroy_select(&s);
    OK(sterna_engine_destroy(engine));
    OK(sterna_engine_destroy(NULL));
    OK(sterna_stream_destroy(NULL));
    OK(sterna_allocator_destroy(NULL));
}

static void executions(sterna_engine_t *engine) {
    struct select s;
    compile_select(&s, engine, 100, 2);
    OK(make_tensors(&s, 100, 2));

    /* Scratch memory of the caller's, of a size that the library names. */
    sterna_logical_tensor_t desc;
    OK(sterna_compiled_partition_get_scratchpad_logical_tensor(s.compiled, &desc));
    REQUIRE(desc.id == SIZE_MAX && desc.ndims == 1 && desc.data_type == STERNA_DATA_TYPE_U8);
    REQUIRE(desc.layout_type == STERNA_LAYOUT_TYPE_STRIDED && desc.property == STERNA_TENSOR_PROPERTY_VARIABLE);
    REQUIRE(desc.dims[0] > 0);
    uint8_t *scratch = malloc((size_t)desc.dims[0] + 1);
    sterna_tensor_t *scratchpad, *small;
    OK(sterna_tensor_create(&scratchpad, &desc, engine, scratch + 1));
    const sterna_tensor_t *in[] = {s.tensor[ELSE], s.tensor[COND], s.tensor[DST], s.tensor[THEN]}; /* any order */
    const sterna_tensor_t *out[] = {s.tensor[DST]};
    OK(sterna_compiled_partition_execute_with_scratchpad(s.compiled, s.stream, 4, in, 1, out, scratchpad));
    check_result(&s, 100);
    memset(s.memory[DST], 0, 400);
    OK(sterna_compiled_partition_execute_with_scratchpad(s.compiled, s.stream, 4, in, 1, out, NULL));
    check_result(&s, 100);
    desc.dims[0] -= 64;
    OK(sterna_tensor_create(&small, &desc, engine, scratch));
    ENDS(INVALID_ARGUMENTS, sterna_compiled_partition_execute_with_scratchpad(s.compiled, s.stream, 4, in, 1, out, small));
    OK(sterna_tensor_set_data_handle(scratchpad, s.memory[DST]));
    ENDS(INVALID_ARGUMENTS, sterna_compiled_partition_execute_with_scratchpad(s.compiled, s.stream, 4, in, 1, out, scratchpad));
    REQUIRE(strstr(sterna_last_error_message(), "overlaps") != NULL);
    OK(sterna_tensor_set_data_handle(scratchpad, NULL));
    ENDS(INVALID_ARGUMENTS, sterna_compiled_partition_execute_with_scratchpad(s.compiled, s.stream, 4, in, 1, out, scratchpad));
    ENDS(INVALID_ARGUMENTS, sterna_compiled_partition_execute_with_scratchpad(s.compiled, s.stream, 4, in, 1, out, s.tensor[ELSE]));
    OK(sterna_tensor_destroy(small));
    OK(sterna_tensor_destroy(scratchpad));
    free(scratch);

    /* Too few tensors, and tensors, streams and memory that are not what was compiled for. */
    ENDS(INVALID_ARGUMENTS, sterna_compiled_partition_execute(s.compiled, s.stream, 2, in, 1, out));
    ENDS(INVALID_ARGUMENTS, sterna_compiled_partition_execute(s.compiled, s.stream, 4, in, 0, NULL));
    OK(sterna_tensor_set_data_handle(s.tensor[DST], (float *)s.memory[ELSE] + 1));
    ENDS(INVALID_ARGUMENTS, execute_select(&s));
    REQUIRE(strstr(sterna_last_error_message(), "overlap") != NULL);
    OK(sterna_tensor_set_data_handle(s.tensor[DST], s.memory[ELSE])); /* an in-place pair */
    size_t pairs;
    const sterna_inplace_pair_t *pair;
    OK(sterna_compiled_partition_get_inplace_ports(s.compiled, &pairs, &pair));
    REQUIRE(pairs == 1 && pair->input_id == ELSE && pair->output_id == DST);
    OK(execute_select(&s));
    s.memory[DST] = s.memory[ELSE];
    check_result(&s, 100);
    OK(sterna_tensor_set_data_handle(s.tensor[DST], NULL));
    ENDS(INVALID_ARGUMENTS, execute_select(&s));

    sterna_engine_t *other;
    sterna_stream_t *stream, *kept = s.stream;
    OK(sterna_engine_create(&other, STERNA_ENGINE_KIND_CPU, 0));
    OK(sterna_stream_create(&stream, other, STERNA_STREAM_FLAG_IN_ORDER));
    OK(sterna_tensor_set_data_handle(s.tensor[DST], STERNA_MEMORY_ALLOCATE));
    s.stream = stream;
    ENDS(INVALID_ARGUMENTS, execute_select(&s));
    s.stream = kept;
    OK(execute_select(&s));
    OK(sterna_stream_destroy(stream));
    OK(sterna_engine_destroy(other));

    ENDS(INVALID_ARGUMENTS, sterna_compiled_partition_query_logical_tensor(s.compiled, 17, &desc));
    OK(sterna_compiled_partition_query_logical_tensor(s.compiled, THEN, &desc));
    REQUIRE(desc.layout.strides[0] == 2 && desc.dims[0] == 100);

    /* Compilation that cannot be: the old one stays. */
    const sterna_logical_tensor_t *inputs[] = {&s.desc[COND], &s.desc[THEN], &s.desc[ELSE]}, *outputs[] = {&desc};
    describe(&desc, DST, STERNA_DATA_TYPE_F32, 99);
    ENDS(INVALID_SHAPE, sterna_partition_compile(s.partition, s.compiled, 3, inputs, 1, outputs, engine));
    describe(&desc, DST, STERNA_DATA_TYPE_S32, 100);
    ENDS(INVALID_DATA_TYPE, sterna_partition_compile(s.partition, s.compiled, 3, inputs, 1, outputs, engine));
    ENDS(INVALID_ARGUMENTS, sterna_partition_compile(s.partition, s.compiled, 2, inputs, 1, outputs, engine));
    OK(execute_select(&s));
    destroy_select(&s);
}

static void settings(void) {
    int capacity, flag;
    size_t size;
    OK(sterna_compiled_partition_cache_get_capacity(&capacity));
    REQUIRE(capacity == 1024);
    OK(sterna_compiled_partition_cache_set_capacity(3));
    OK(sterna_compiled_partition_cache_get_capacity(&capacity));
    REQUIRE(capacity == 3);
    ENDS(INVALID_ARGUMENTS, sterna_compiled_partition_cache_set_capacity(-1));

    OK(sterna_constant_tensor_cache_get(&flag));
    OK(sterna_constant_tensor_cache_get_capacity(STERNA_ENGINE_KIND_CPU, &size));
    /* Half of the memory of the process. */
    REQUIRE(flag == 1 && size >= 64);
    OK(sterna_constant_tensor_cache_set_capacity(STERNA_ENGINE_KIND_CPU, 12));
    OK(sterna_constant_tensor_cache_get_capacity(STERNA_ENGINE_KIND_CPU, &size));
    OK(sterna_constant_tensor_cache_get(&flag));
    REQUIRE(flag == 1 && size == 12);
    OK(sterna_constant_tensor_cache_get_capacity(STERNA_ENGINE_KIND_GPU, &size));
    REQUIRE(size == 0);
    OK(sterna_constant_tensor_cache_set_capacity(STERNA_ENGINE_KIND_CPU, SIZE_MAX));
    OK(sterna_constant_tensor_cache_get_capacity(STERNA_ENGINE_KIND_CPU, &size));
    REQUIRE(size == SIZE_MAX / 1048576);
    OK(sterna_constant_tensor_cache_set(0));
    OK(sterna_constant_tensor_cache_get_capacity(STERNA_ENGINE_KIND_CPU, &size));
    REQUIRE(size == 0);
    OK(sterna_constant_tensor_cache_set(5));
    OK(sterna_constant_tensor_cache_get(&flag));
    OK(sterna_constant_tensor_cache_get_capacity(STERNA_ENGINE_KIND_GPU, &size));
    REQUIRE(flag == 1 && size == SIZE_MAX / 1048576);
    ENDS(INVALID_ARGUMENTS, sterna_constant_tensor_cache_set(-1));
    ENDS(INVALID_ARGUMENTS, sterna_constant_tensor_cache_get_capacity(STERNA_ENGINE_KIND_ANY, &size));

    const sterna_version_t *version = sterna_version();
    char text[64];
    snprintf(text, sizeof text, "%d.%d.%d", version->major, version->minor, version->patch);
    REQUIRE(strcmp(text, sterna_version_string()) == 0 && strstr(version->hash, text) != NULL);
    REQUIRE(strcmp(sterna_status_string(STERNA_STATUS_INVALID_SHAPE), "invalid_shape") == 0);
    REQUIRE(strcmp(sterna_status_string(77), "unknown status") == 0);
    REQUIRE(strcmp(sterna_data_type_string(STERNA_DATA_TYPE_BF16), "bf16") == 0);
    OK(sterna_data_type_get_size(STERNA_DATA_TYPE_BF16, &size));
    REQUIRE(size == 2);
}

int main(void) {
    /* Nothing has failed yet. */
    REQUIRE(*sterna_last_error_message() == '\0');
    /* The level is open until the first engine is made. */
    OK(sterna_cpu_isa_set_max(STERNA_CPU_ISA_AVX2));
    OK(sterna_cpu_isa_set_max(STERNA_CPU_ISA_DEFAULT));
    ENDS(INVALID_ARGUMENTS, sterna_cpu_isa_set_max(5));
    sterna_engine_t *engine;
    OK(sterna_engine_create(&engine, STERNA_ENGINE_KIND_CPU, 0));
    ENDS(INVALID_ARGUMENTS, sterna_cpu_isa_set_max(STERNA_CPU_ISA_AVX2));
    sterna_level_t level;
    OK(sterna_engine_get_level(engine, &level));
    const sterna_cpu_isa_t isa = sterna_cpu_isa_get_effective();
    REQUIRE((level == STERNA_LEVEL_AVX512) == (isa >= STERNA_CPU_ISA_AVX512_CORE));
    REQUIRE((level == STERNA_LEVEL_AVX2) == (isa == STERNA_CPU_ISA_AVX2));

    logical_tensors();
    tensors(engine);
    ops();
    graphs(engine);
    json();
    engines_and_streams();
    executions(engine);
    settings();
    OK(sterna_engine_destroy(engine));
    return 0;
}
