/* A client of libdnnl.so.3 that needs no header: what it calls is declared here. It selects on {4} f32, beside an op
 * that nothing runs, prints the result, and answers 0 if every call succeeded. `small late` sets the verbose level
 * and the dump mode by calls. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct {
    size_t id;
    int ndims;
    int64_t dims[12];
    int data_type, property, layout_type;
    union {
        int64_t strides[12];
        size_t layout_id;
    } layout;
} lt_t;

typedef struct {
    int major, minor, patch;
    const char *hash;
    unsigned cpu_runtime, gpu_runtime;
} version_t;

extern const version_t *dnnl_version(void);
extern int dnnl_set_verbose(int level);
extern int dnnl_engine_create(void **engine, int kind, size_t index);
extern int dnnl_engine_destroy(void *engine);
extern int dnnl_stream_create(void **stream, void *engine, unsigned flags);
extern int dnnl_stream_wait(void *stream);
extern int dnnl_stream_destroy(void *stream);
extern int dnnl_graph_set_dump_mode(int mode);
extern int dnnl_graph_get_constant_tensor_cache(int *flag);
extern int dnnl_graph_logical_tensor_init_with_dims(
        lt_t *lt, size_t id, int type, int32_t ndims, const int64_t *dims, int layout, int property);
extern int dnnl_graph_op_create(void **op, size_t id, int kind, const char *name);
extern int dnnl_graph_op_destroy(void *op);
extern int dnnl_graph_op_add_input(void *op, const lt_t *lt);
extern int dnnl_graph_op_add_output(void *op, const lt_t *lt);
extern int dnnl_graph_op_set_attr_str(void *op, int attr, const char *value, size_t length);
extern int dnnl_graph_graph_create(void **graph, int kind);
extern int dnnl_graph_graph_destroy(void *graph);
extern int dnnl_graph_add_op(void *graph, void *op);
extern int dnnl_graph_graph_finalize(void *graph);
extern int dnnl_graph_graph_filter(void *graph, int policy);
extern int dnnl_graph_graph_get_partition_num(const void *graph, size_t *number);
extern int dnnl_graph_graph_get_partitions(void *graph, size_t number, void **partitions);
extern int dnnl_graph_partition_is_supported(const void *partition, uint8_t *supported);
extern int dnnl_graph_partition_destroy(void *partition);
extern int dnnl_graph_compiled_partition_create(void **compiled, void *partition);
extern int dnnl_graph_partition_compile(const void *partition, void *compiled, size_t in_num, const lt_t **in,
        size_t out_num, const lt_t **out, void *engine);
extern int dnnl_graph_compiled_partition_execute(
        const void *compiled, void *stream, size_t in_num, void *const *in, size_t out_num, void *const *out);
extern int dnnl_graph_compiled_partition_destroy(void *compiled);
extern int dnnl_graph_tensor_create(void **tensor, const lt_t *lt, void *engine, void *handle);
extern int dnnl_graph_tensor_destroy(void *tensor);

enum { BOOLEAN = 8, F32 = 3, STRIDED = 2, CPU = 1, FUSION = 1, SELECT = 81, WILDCARD = 78, AUTO_BROADCAST = 128 };

static int failures;

static void must(int status, const char *call) {
    if (status != 0) {
        printf("%s answers %d\n", call, status);
        failures++;
    }
}

#define MUST(call) must(call, #call)

int main(int argc, char **argv) {
    (void)argv;
    const int64_t dims[] = {4};
    lt_t lt[5];
    void *engine, *stream, *graph, *select, *other, *partitions[2], *compiled = NULL, *in[3], *out[1];
    size_t number = 0;
    uint8_t cond[] = {1, 0, 0, 1};
    float then[] = {1, 2, 3, 4}, else_[] = {-1, -2, -3, -4}, dst[4] = {0};
    void *const memory[] = {cond, then, else_, dst};

    printf("version %d.%d.%d %s\n", dnnl_version()->major, dnnl_version()->minor, dnnl_version()->patch,
            dnnl_version()->hash);
    int keeps_constants = -1;
    MUST(dnnl_graph_get_constant_tensor_cache(&keeps_constants));
    MUST(keeps_constants);
    if (argc > 1) {
        MUST(dnnl_set_verbose(1));
        MUST(dnnl_graph_set_dump_mode(3));
    }
    for (int i = 0; i < 5; i++)
        MUST(dnnl_graph_logical_tensor_init_with_dims(&lt[i], i, i == 0 ? BOOLEAN : F32, 1, dims, STRIDED, 0));
    MUST(dnnl_engine_create(&engine, CPU, 0));
    MUST(dnnl_stream_create(&stream, engine, 1));
    MUST(dnnl_graph_op_create(&select, 7, SELECT, "pick"));
    for (int i = 0; i < 3; i++) MUST(dnnl_graph_op_add_input(select, &lt[i]));
    MUST(dnnl_graph_op_add_output(select, &lt[3]));
    MUST(dnnl_graph_op_set_attr_str(select, AUTO_BROADCAST, "numpy", 5));
    MUST(dnnl_graph_op_create(&other, 8, WILDCARD, "stranger"));
    MUST(dnnl_graph_op_add_input(other, &lt[3]));
    MUST(dnnl_graph_op_add_output(other, &lt[4]));
    MUST(dnnl_graph_graph_create(&graph, CPU));
    MUST(dnnl_graph_add_op(graph, select));
    MUST(dnnl_graph_add_op(graph, other));
    MUST(dnnl_graph_graph_finalize(graph));
    MUST(dnnl_graph_graph_filter(graph, FUSION));
    MUST(dnnl_graph_graph_get_partition_num(graph, &number));
    if (number != 2) return 1;
    MUST(dnnl_graph_graph_get_partitions(graph, number, partitions));
    for (size_t p = 0; p < number; p++) {
        uint8_t supported = 0;
        MUST(dnnl_graph_partition_is_supported(partitions[p], &supported));
        if (supported) {
            const lt_t *c_in[] = {&lt[0], &lt[1], &lt[2]}, *c_out[] = {&lt[3]};
            MUST(dnnl_graph_compiled_partition_create(&compiled, partitions[p]));
            MUST(dnnl_graph_partition_compile(partitions[p], compiled, 3, c_in, 1, c_out, engine));
            for (int i = 0; i < 3; i++) MUST(dnnl_graph_tensor_create(&in[i], &lt[i], engine, memory[i]));
            MUST(dnnl_graph_tensor_create(&out[0], &lt[3], engine, memory[3]));
            MUST(dnnl_graph_compiled_partition_execute(compiled, stream, 3, in, 1, out));
            MUST(dnnl_stream_wait(stream));
            for (int i = 0; i < 3; i++) MUST(dnnl_graph_tensor_destroy(in[i]));
            MUST(dnnl_graph_tensor_destroy(out[0]));
            MUST(dnnl_graph_compiled_partition_destroy(compiled));
            printf("result %g %g %g %g\n", dst[0], dst[1], dst[2], dst[3]);
        }
        MUST(dnnl_graph_partition_destroy(partitions[p]));
    }
    MUST(dnnl_graph_op_destroy(select));
    MUST(dnnl_graph_op_destroy(other));
    MUST(dnnl_graph_graph_destroy(graph));
    MUST(dnnl_stream_destroy(stream));
    MUST(dnnl_engine_destroy(engine));
    return failures != 0;
}
