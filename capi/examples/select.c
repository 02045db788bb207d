/* The whole way of a select: described, compiled, executed.
 *
 * dst = cond ? then : else, where cond broadcasts onto the rows of then, and else is one value for all. */
#include <stdio.h>
#include <stdlib.h>

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

enum { COND, THEN, ELSE, DST };

int main(void) {
    const int64_t rows_and_columns[] = {2, 3};
    uint8_t cond[] = {1, 0, 1};
    float then[] = {1, 2, 3, 4, 5, 6}, otherwise = -1, dst[6];
    void *const memory[] = {cond, then, &otherwise, dst};

    /* What the tensors are; compilation finds out the shape of dst. */
    sterna_logical_tensor_t desc[4];
    CHECK(sterna_logical_tensor_init_with_dims(&desc[COND], COND, STERNA_DATA_TYPE_BOOLEAN, 1,
                                               &rows_and_columns[1], STERNA_LAYOUT_TYPE_STRIDED,
                                               STERNA_TENSOR_PROPERTY_VARIABLE));
    CHECK(sterna_logical_tensor_init_with_dims(&desc[THEN], THEN, STERNA_DATA_TYPE_F32, 2, rows_and_columns,
                                               STERNA_LAYOUT_TYPE_STRIDED, STERNA_TENSOR_PROPERTY_VARIABLE));
    CHECK(sterna_logical_tensor_init_with_dims(&desc[ELSE], ELSE, STERNA_DATA_TYPE_F32, 0, NULL,
                                               STERNA_LAYOUT_TYPE_STRIDED, STERNA_TENSOR_PROPERTY_VARIABLE));
    CHECK(sterna_logical_tensor_init(&desc[DST], DST, STERNA_DATA_TYPE_F32, -1, STERNA_LAYOUT_TYPE_ANY,
                                     STERNA_TENSOR_PROPERTY_VARIABLE));

    /* What is computed. */
    sterna_op_t *op;
    CHECK(sterna_op_create(&op, 0, STERNA_OP_SELECT, "choose"));
    for (int i = COND; i <= ELSE; i++) {
        CHECK(sterna_op_add_input(op, &desc[i]));
    }
    CHECK(sterna_op_add_output(op, &desc[DST]));
    sterna_partition_t *partition;
    CHECK(sterna_partition_create_with_op(&partition, op, STERNA_ENGINE_KIND_CPU));

    /* Compiled once, for these shapes. */
    sterna_engine_t *engine;
    CHECK(sterna_engine_create(&engine, STERNA_ENGINE_KIND_CPU, 0));
    sterna_compiled_partition_t *compiled;
    CHECK(sterna_compiled_partition_create(&compiled, partition));
    const sterna_logical_tensor_t *inputs[] = {&desc[COND], &desc[THEN], &desc[ELSE]}, *outputs[] = {&desc[DST]};
    CHECK(sterna_partition_compile(partition, compiled, 3, inputs, 1, outputs, engine));
    CHECK(sterna_compiled_partition_query_logical_tensor(compiled, DST, &desc[DST]));

    /* Executed, on memory of our own. */
    sterna_stream_t *stream;
    CHECK(sterna_stream_create(&stream, engine, STERNA_STREAM_FLAG_IN_ORDER));
    sterna_tensor_t *tensors[4];
    for (int i = COND; i <= DST; i++) {
        CHECK(sterna_tensor_create(&tensors[i], &desc[i], engine, memory[i]));
    }
    const sterna_tensor_t *from[] = {tensors[COND], tensors[THEN], tensors[ELSE]}, *to[] = {tensors[DST]};
    CHECK(sterna_compiled_partition_execute(compiled, stream, 3, from, 1, to));

    for (int i = 0; i < 6; i++) {
        printf(i % 3 == 2 ? "%g\n" : "%g ", dst[i]); /* 1 -1 3, 4 -1 6 */
    }

    for (int i = COND; i <= DST; i++) {
        sterna_tensor_destroy(tensors[i]);
    }
    sterna_stream_destroy(stream);
    sterna_compiled_partition_destroy(compiled);
    sterna_engine_destroy(engine);
    sterna_partition_destroy(partition);
    sterna_op_destroy(op);
    return 0;
}
