/* An allocator that fails at its n-th call, for every n up to the last and beyond, under a graph of two groups: fused
 * and op by op, small and large, with scratch memory of the library's and of the caller's. One call says out_of_memory,
 * the same call works when it is made again, results are what they are, and every block goes back. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdint.h>

#include "check.h"

enum { TENSORS = 14, SMALL = 500, LARGE = 700000, BOOLEAN = STERNA_DATA_TYPE_BOOLEAN, F32 = STERNA_DATA_TYPE_F32 };

/* Workers ask for nothing, but nobody promised that. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int calls, fail_at, blocks;

static void *allocate(size_t size, size_t alignment) {
    void *block = NULL;
    pthread_mutex_lock(&lock);
    if (++calls == fail_at || posix_memalign(&block, alignment, size) != 0) {
        block = NULL;
    }
    blocks += block != NULL;
    pthread_mutex_unlock(&lock);
    return block;
}

static void release(void *block) {
    pthread_mutex_lock(&lock);
    blocks--;
    pthread_mutex_unlock(&lock);
    free(block);
}

static int failures;

/* Makes a call that may run out of memory once. */
#define UNTIL_IT_WORKS(call)                                                                \
    do {                                                                                    \
        sterna_status_t status_ = (call);                                                   \
        if (status_ == STERNA_STATUS_OUT_OF_MEMORY) {                                       \
            failures++;                                                                     \
            status_ = (call);                                                               \
        }                                                                                   \
        REQUIRE(status_ == STERNA_STATUS_SUCCESS);                                          \
    } while (0)

static void add(sterna_graph_t *graph, size_t id, sterna_op_kind_t kind, size_t count,
                const sterna_logical_tensor_t *const *inputs, const sterna_logical_tensor_t *output) {
    sterna_op_t *op;
    OK(sterna_op_create(&op, id, kind, ""));
    for (size_t i = 0; i < count; i++) {
        OK(sterna_op_add_input(op, inputs[i]));
    }
    OK(sterna_op_add_output(op, output));
    OK(sterna_graph_add_op(graph, op));
    OK(sterna_op_destroy(op));
}

/* Two groups that have nothing to do with each other; 2 and 5 have gaps between their elements. */
static sterna_graph_t *two_groups(sterna_logical_tensor_t desc[TENSORS], int64_t length) {
    const int64_t apart = 2;
    for (size_t id = 0; id < TENSORS; id++) {
        describe(&desc[id], id, id == 3 || id == 11 ? BOOLEAN : F32, length);
        if (id == 2 || id == 5) {
            OK(sterna_logical_tensor_init_with_strides(&desc[id], id, F32, 1, &length, &apart,
                                                       STERNA_TENSOR_PROPERTY_VARIABLE));
        }
    }
    sterna_graph_t *graph;
    OK(sterna_graph_create(&graph, STERNA_ENGINE_KIND_CPU));
    add(graph, 0, STERNA_OP_MULTIPLY, 2, (const sterna_logical_tensor_t *[]) {&desc[0], &desc[1]}, &desc[10]);
    add(graph, 1, STERNA_OP_GREATER_EQUAL, 2, (const sterna_logical_tensor_t *[]) {&desc[0], &desc[1]}, &desc[11]);
    add(graph, 2, STERNA_OP_SELECT, 3, (const sterna_logical_tensor_t *[]) {&desc[11], &desc[10], &desc[2]}, &desc[12]);
    add(graph, 3, STERNA_OP_SELECT, 3, (const sterna_logical_tensor_t *[]) {&desc[3], &desc[4], &desc[5]}, &desc[13]);
    OK(sterna_graph_finalize(graph));
    return graph;
}

struct workflow {
    int64_t length;
    sterna_partition_policy_t policy;
    int own_scratch;
    sterna_engine_t *engine;
    sterna_tensor_t *tensors[TENSORS];
    void *memory[TENSORS];
};

static void make_tensor(struct workflow *w, const sterna_logical_tensor_t *desc) {
    const size_t id = desc->id;
    if (w->tensors[id] == NULL) {
        UNTIL_IT_WORKS(sterna_tensor_create(&w->tensors[id], desc, w->engine, STERNA_MEMORY_ALLOCATE));
        OK(sterna_tensor_get_data_handle(w->tensors[id], &w->memory[id]));
    }
}

static void run_partition(struct workflow *w, sterna_partition_t *partition) {
    sterna_logical_tensor_t desc[TENSORS];
    const sterna_logical_tensor_t *ports[TENSORS];
    const sterna_tensor_t *tensors[TENSORS];
    size_t ins, outs;
    OK(sterna_partition_get_input_ports_num(partition, &ins));
    OK(sterna_partition_get_output_ports_num(partition, &outs));
    OK(sterna_partition_get_input_ports(partition, ins, desc));
    OK(sterna_partition_get_output_ports(partition, outs, desc + ins));
    for (size_t i = 0; i < ins + outs; i++) {
        make_tensor(w, &desc[i]);
        ports[i] = &desc[i];
        tensors[i] = w->tensors[desc[i].id];
    }
    sterna_compiled_partition_t *compiled;
    sterna_stream_t *stream;
    OK(sterna_compiled_partition_create(&compiled, partition));
    OK(sterna_partition_compile(partition, compiled, ins, ports, outs, ports + ins, w->engine));
    OK(sterna_stream_create(&stream, w->engine, STERNA_STREAM_FLAG_IN_ORDER));
    sterna_tensor_t *scratch = NULL;
    if (w->own_scratch) {
        sterna_logical_tensor_t needed;
        OK(sterna_compiled_partition_get_scratchpad_logical_tensor(compiled, &needed));
        UNTIL_IT_WORKS(sterna_tensor_create(&scratch, &needed, w->engine, STERNA_MEMORY_ALLOCATE));
    }
    for (int i = 0; i < 2; i++) {
        UNTIL_IT_WORKS(sterna_compiled_partition_execute_with_scratchpad(compiled, stream, ins, tensors, outs, tensors + ins, scratch));
    }
    OK(sterna_tensor_destroy(scratch));
    OK(sterna_stream_destroy(stream));
    OK(sterna_compiled_partition_destroy(compiled));
}

static void check(const struct workflow *w) {
    float *const *f = (float *const *)w->memory;
    const uint8_t *mask = w->memory[3];
    for (int64_t i = 0; i < w->length; i++) {
        REQUIRE(f[12][i] == (f[0][i] >= f[1][i] ? f[0][i] * f[1][i] : f[2][2 * i]));
        REQUIRE(f[13][i] == (mask[i] ? f[4][i] : f[5][2 * i]));
    }
}

/* The whole way, with two executions of each partition; answers with the calls of the allocator. */
static int run(struct workflow w) {
    sterna_logical_tensor_t desc[TENSORS];
    sterna_allocator_t *allocator;
    calls = failures = 0;
    OK(sterna_allocator_create(&allocator, allocate, release));
    OK(make_engine(&w.engine, allocator, 3));
    OK(sterna_allocator_destroy(allocator));
    sterna_graph_t *graph = two_groups(desc, w.length);
    for (size_t id = 0; id < 6; id++) {
        make_tensor(&w, &desc[id]);
        const int64_t apart = id == 2 || id == 5 ? 2 : 1;
        for (int64_t i = 0; i < w.length; i++) {
            if (id == 3) {
                ((uint8_t *)w.memory[id])[i] = i % 3 == 0;
            } else {
                ((float *)w.memory[id])[i * apart] = (float)(i * (int64_t)(id + 3) % 101);
            }
        }
    }
    OK(sterna_graph_filter(graph, w.policy));
    sterna_partition_t *partitions[4];
    size_t count;
    OK(sterna_graph_get_partition_num(graph, &count));
    REQUIRE(count == (w.policy == STERNA_PARTITION_POLICY_FUSION ? 2 : 4));
    OK(sterna_graph_get_partitions(graph, count, partitions));
    OK(sterna_graph_destroy(graph));
    for (size_t i = 0; i < count; i++) {
        run_partition(&w, partitions[i]);
        OK(sterna_partition_destroy(partitions[i]));
    }
    check(&w);
    for (size_t id = 0; id < TENSORS; id++) {
        OK(sterna_tensor_destroy(w.tensors[id]));
    }
    OK(sterna_engine_destroy(w.engine));
    REQUIRE(blocks == 0);
    return calls;
}

int main(void) {
    static const struct {
        int64_t length;
        sterna_partition_policy_t policy;
        int own_scratch;
    } variants[] = {
        {SMALL, STERNA_PARTITION_POLICY_DEBUG, 0},  {SMALL, STERNA_PARTITION_POLICY_DEBUG, 1},
        {SMALL, STERNA_PARTITION_POLICY_FUSION, 0}, {SMALL, STERNA_PARTITION_POLICY_FUSION, 1},
        {LARGE, STERNA_PARTITION_POLICY_FUSION, 0}, /* with workers */
    };
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        struct workflow w = {0};
        w.length = variants[i].length;
        w.policy = variants[i].policy;
        w.own_scratch = variants[i].own_scratch;
        fail_at = 0;
        const int needed = run(w);
        REQUIRE(failures == 0);
        REQUIRE(needed > 8); /* tensors, and scratch of at least one partition */
        for (fail_at = 1; fail_at <= needed + 1; fail_at++) {
            run(w);
            if (failures != (fail_at <= needed)) {
                fprintf(stderr, "variant %zu, call %d of %d: %d calls ran out of memory\n", i, fail_at, needed, failures);
                return 1;
            }
        }
    }
    return 0;
}
