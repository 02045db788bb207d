/* Two graphs, an allocator of our own, and threads.
 *
 * Attention scores of a batch are masked in two ways: by a causal mask that all heads share, and by a padding mask of
 * each batch entry, which is in place. Both compiled partitions are executed by several threads at once, each on its
 * own part of the batch; the memory of all tensors comes from the allocator. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <pthread.h>
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

enum { BATCH = 4, HEADS = 3, LENGTH = 40 };
enum { MASK, SCORES, FILL, MASKED };

/* The allocator: the system's memory, and a count of the blocks that are out. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int blocks, blocks_ever;

static void *allocate(size_t size, size_t alignment) {
    void *block = NULL;
    if (posix_memalign(&block, alignment, size) != 0) {
        return NULL;
    }
    pthread_mutex_lock(&lock);
    blocks++;
    blocks_ever++;
    pthread_mutex_unlock(&lock);
    return block;
}

static void release(void *block) {
    pthread_mutex_lock(&lock);
    blocks--;
    pthread_mutex_unlock(&lock);
    free(block);
}

static sterna_logical_tensor_t described(size_t id, sterna_data_type_t type, int ndims, const int64_t *dims) {
    sterna_logical_tensor_t desc;
    CHECK(sterna_logical_tensor_init_with_dims(&desc, id, type, ndims, dims, STERNA_LAYOUT_TYPE_STRIDED,
                                               STERNA_TENSOR_PROPERTY_VARIABLE));
    return desc;
}

/* A graph of one select that keeps the scores where a mask of the given shape is set, compiled. */
static sterna_compiled_partition_t *mask_graph(const sterna_engine_t *engine, const int64_t *mask_dims,
                                               sterna_logical_tensor_t desc[4]) {
    const int64_t dims[] = {1, HEADS, LENGTH, LENGTH};
    desc[MASK] = described(MASK, STERNA_DATA_TYPE_BOOLEAN, 4, mask_dims);
    desc[SCORES] = described(SCORES, STERNA_DATA_TYPE_F32, 4, dims);
    desc[FILL] = described(FILL, STERNA_DATA_TYPE_F32, 0, NULL);
    desc[MASKED] = described(MASKED, STERNA_DATA_TYPE_F32, 4, dims);

    sterna_op_t *op;
    CHECK(sterna_op_create(&op, 0, STERNA_OP_SELECT, ""));
    CHECK(sterna_op_set_attr_str(op, STERNA_ATTR_AUTO_BROADCAST, "numpy", strlen("numpy")));
    for (int i = MASK; i <= FILL; i++) {
        CHECK(sterna_op_add_input(op, &desc[i]));
    }
    CHECK(sterna_op_add_output(op, &desc[MASKED]));

    sterna_graph_t *graph;
    CHECK(sterna_graph_create(&graph, STERNA_ENGINE_KIND_CPU));
    CHECK(sterna_graph_add_op(graph, op));
    CHECK(sterna_graph_finalize(graph));
    CHECK(sterna_graph_filter(graph, STERNA_PARTITION_POLICY_FUSION));
    size_t count;
    CHECK(sterna_graph_get_partition_num(graph, &count));
    if (count != 1) {
        fprintf(stderr, "%zu partitions\n", count);
        exit(1);
    }
    sterna_partition_t *partition;
    CHECK(sterna_graph_get_partitions(graph, 1, &partition));

    sterna_compiled_partition_t *compiled;
    CHECK(sterna_compiled_partition_create(&compiled, partition));
    const sterna_logical_tensor_t *inputs[] = {&desc[MASK], &desc[SCORES], &desc[FILL]};
    const sterna_logical_tensor_t *outputs[] = {&desc[MASKED]};
    CHECK(sterna_partition_compile(partition, compiled, 3, inputs, 1, outputs, engine));

    /* What is compiled needs none of these any more. */
    sterna_partition_destroy(partition);
    sterna_graph_destroy(graph);
    sterna_op_destroy(op);
    return compiled;
}

static sterna_tensor_t *allocated(const sterna_logical_tensor_t *desc, sterna_engine_t *engine, void **memory) {
    sterna_tensor_t *tensor;
    CHECK(sterna_tensor_create(&tensor, desc, engine, STERNA_MEMORY_ALLOCATE));
    CHECK(sterna_tensor_get_data_handle(tensor, memory));
    return tensor;
}

/* What all threads share. */
struct shared {
    sterna_engine_t *engine;
    sterna_logical_tensor_t causal_desc[4], padding_desc[4];
    sterna_compiled_partition_t *causal, *padding;
};

struct work {
    const struct shared *shared;
    int entry;
    long kept;
};

/* Masks one entry of the batch, whose words end at a length of its own. */
static void *mask_entry(void *argument) {
    struct work *work = argument;
    const struct shared *shared = work->shared;
    const int words = LENGTH - 7 * work->entry;
    void *memory;

    sterna_tensor_t *causal_mask = allocated(&shared->causal_desc[MASK], shared->engine, &memory);
    for (int i = 0; i < LENGTH * LENGTH; i++) {
        ((uint8_t *)memory)[i] = i % LENGTH <= i / LENGTH;
    }
    sterna_tensor_t *padding_mask = allocated(&shared->padding_desc[MASK], shared->engine, &memory);
    for (int i = 0; i < LENGTH; i++) {
        ((uint8_t *)memory)[i] = i < words;
    }
    sterna_tensor_t *scores = allocated(&shared->causal_desc[SCORES], shared->engine, &memory);
    for (int i = 0; i < HEADS * LENGTH * LENGTH; i++) {
        ((float *)memory)[i] = (float)i;
    }
    float lowest = -INFINITY;
    sterna_tensor_t *fill, *masked, *masked_again;
    CHECK(sterna_tensor_create(&fill, &shared->causal_desc[FILL], shared->engine, &lowest));
    masked = allocated(&shared->causal_desc[MASKED], shared->engine, &memory);

    /* The second partition reads the result of the first and writes over it. */
    CHECK(sterna_tensor_create(&masked_again, &shared->padding_desc[SCORES], shared->engine, memory));
    sterna_tensor_t *in_place;
    CHECK(sterna_tensor_create(&in_place, &shared->padding_desc[MASKED], shared->engine, memory));

    sterna_stream_t *stream;
    CHECK(sterna_stream_create(&stream, shared->engine, STERNA_STREAM_FLAG_IN_ORDER));
    const sterna_tensor_t *first[] = {causal_mask, scores, fill}, *first_to[] = {masked};
    CHECK(sterna_compiled_partition_execute(shared->causal, stream, 3, first, 1, first_to));
    const sterna_tensor_t *second[] = {padding_mask, masked_again, fill}, *second_to[] = {in_place};
    CHECK(sterna_compiled_partition_execute(shared->padding, stream, 3, second, 1, second_to));

    work->kept = 0;
    for (int i = 0; i < HEADS * LENGTH * LENGTH; i++) {
        int column = i % LENGTH, row = i / LENGTH % LENGTH;
        float expected = column <= row && column < words ? (float)i : lowest, found = ((float *)memory)[i];
        if (found != expected) {
            fprintf(stderr, "element %d is %g, not %g\n", i, found, expected);
            exit(1);
        }
        work->kept += found != lowest;
    }

    sterna_tensor_t *const tensors[] = {causal_mask, padding_mask, scores, fill, masked_again, in_place, masked};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        sterna_tensor_destroy(tensors[i]);
    }
    sterna_stream_destroy(stream);
    return NULL;
}

int main(void) {
    struct shared shared;
    sterna_allocator_t *allocator;
    CHECK(sterna_allocator_create(&allocator, allocate, release));
    sterna_engine_options_t options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.allocator = allocator;
    options.threads = 2;
    CHECK(sterna_engine_create_with_options(&shared.engine, &options));
    CHECK(sterna_allocator_destroy(allocator)); /* the engine has copied it */

    const int64_t causal[] = {1, 1, LENGTH, LENGTH}, padding[] = {1, 1, 1, LENGTH};
    shared.causal = mask_graph(shared.engine, causal, shared.causal_desc);
    shared.padding = mask_graph(shared.engine, padding, shared.padding_desc);

    /* `scores` and `masked` may be one buffer. */
    size_t pairs;
    const sterna_inplace_pair_t *pair;
    CHECK(sterna_compiled_partition_get_inplace_ports(shared.padding, &pairs, &pair));
    if (pairs != 1 || pair->input_id != SCORES || pair->output_id != MASKED) {
        fprintf(stderr, "%zu in-place pairs\n", pairs);
        return 1;
    }

    pthread_t threads[BATCH];
    struct work work[BATCH];
    for (int i = 0; i < BATCH; i++) {
        work[i].shared = &shared;
        work[i].entry = i;
        if (pthread_create(&threads[i], NULL, mask_entry, &work[i]) != 0) {
            return 1;
        }
    }
    for (int i = 0; i < BATCH; i++) {
        pthread_join(threads[i], NULL);
        printf("entry %d keeps %ld scores of %d\n", i, work[i].kept, HEADS * LENGTH * LENGTH);
    }

    sterna_compiled_partition_destroy(shared.causal);
    sterna_compiled_partition_destroy(shared.padding);
    sterna_engine_destroy(shared.engine);
    if (blocks != 0 || blocks_ever < 4 * BATCH) {
        fprintf(stderr, "%d blocks are out of %d\n", blocks, blocks_ever);
        return 1;
    }
    return 0;
}
