/* Options of attention that do not do, structs of other sizes, dims of 0, and the ids that good ones take. */
#include <math.h>

#include "check.h"

enum { Q, K, V, TO, EXTRA, TENSORS };

static sterna_logical_tensor_t desc[TENSORS];
static sterna_graph_t *graph;

static sterna_logical_tensor_t described(size_t id, sterna_data_type_t type, int ndims, const int64_t *dims) {
    sterna_logical_tensor_t tensor;
    OK(sterna_logical_tensor_init_with_dims(&tensor, id, type, ndims, dims, STERNA_LAYOUT_TYPE_STRIDED,
                                            STERNA_TENSOR_PROPERTY_VARIABLE));
    return tensor;
}

static sterna_attention_options_t plain(void) {
    sterna_attention_options_t options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.q = &desc[Q];
    options.k = &desc[K];
    options.v = &desc[V];
    options.dst = &desc[TO];
    options.first_tensor_id = 50;
    return options;
}

/* The graph stays as it was, and the sentence names what is wrong. */
static void refused(const sterna_attention_options_t *options, sterna_status_t status, const char *word) {
    char *before, *after;
    size_t op_num = 77, tensor_num = 77;
    OK(sterna_graph_to_json(graph, &before, NULL));
    REQUIRE(sterna_graph_add_attention(graph, options, &op_num, &tensor_num) == status);
    REQUIRE(strstr(sterna_last_error_message(), word) != NULL);
    REQUIRE(op_num == 77 && tensor_num == 77);
    OK(sterna_graph_to_json(graph, &after, NULL));
    REQUIRE(strcmp(before, after) == 0);
    OK(sterna_string_destroy(before));
    OK(sterna_string_destroy(after));
}

#define REFUSED(change, word)                                          \
    do {                                                               \
        sterna_attention_options_t options = plain();                  \
        change;                                                        \
        refused(&options, STERNA_STATUS_INVALID_ARGUMENTS, word);      \
    } while (0)

static void bad_options(void) {
    REFUSED(options.q = NULL, "`q` is null");
    REFUSED(options.k = NULL, "`k` is null");
    REFUSED(options.v = NULL, "`v` is null");
    REFUSED(options.dst = NULL, "`dst` is null");
    REFUSED(options.q = (const sterna_logical_tensor_t *)((const char *)&desc[Q] + 1), "`q` is not aligned");
    REFUSED(options.window = -1, "`window` is -1");
    REFUSED(options.window = ((int64_t)1 << 24) + 1, "`window` is 16777217");
    REFUSED(options.groups = 3, "`groups` is 3, which does not divide the 4 heads of `q`");
    REFUSED(options.groups = -1, "`groups` is -1");
    const float no_number = NAN;
    REFUSED(options.scale = &no_number, "`scale` is NaN");
    REFUSED(options.scale = (const float *)((const char *)&no_number + 1), "`scale` is not aligned");
    REFUSED(options.softcap = -2, "`softcap` is -2");
    REFUSED(options.causal = 4, "4 is no place of a diagonal");
    REFUSED(options.causal = -1, "-1 is no place of a diagonal");
    REFUSED(options.causal = STERNA_CAUSAL_OFFSET, "`offset` is null");
    REFUSED(options.offset = &desc[EXTRA], "`causal` is none, but `offset` is given");
    REFUSED((options.offset = &desc[EXTRA], options.causal = STERNA_CAUSAL_TOP_LEFT), "`causal` is top_left");
    REFUSED((options.offset = &desc[EXTRA], options.causal = 9), "9 is no place of a diagonal");
    REFUSED((options.offset = &desc[EXTRA], options.causal = STERNA_CAUSAL_OFFSET), "an offset is s32");
    REFUSED(options.mask_true = STERNA_MASK_TRUE_MASKS, "`mask` is null");
    REFUSED((options.mask = &desc[Q], options.mask_true = 2), "2 is no meaning of true");
    REFUSED(options.mask = &desc[Q], "a mask is boolean");
    REFUSED(options.bias = &desc[EXTRA], "booleans are a `mask`");
    REFUSED(options.score_type = 0x7fff, "32767 is no data type");
    REFUSED(options.score_type = STERNA_DATA_TYPE_F16, "`score_type` is f16");
    REFUSED(options.first_tensor_id = Q, "tensor 0 is there already");
    REFUSED(options.first_tensor_id = SIZE_MAX - 1, "the ids leave usize");
    REFUSED(options.struct_size = 0, "`struct_size` is 0");
    REFUSED(options.struct_size = 7, "`struct_size` is 7");
    REFUSED(options.struct_size = offsetof(sterna_attention_options_t, bias) - 1, "`struct_size`");
    REFUSED(options.struct_size = SIZE_MAX, "`struct_size`");
    ENDS(INVALID_ARGUMENTS, sterna_graph_add_attention(graph, NULL, NULL, NULL));
    sterna_attention_options_t options = plain();
    ENDS(INVALID_ARGUMENTS, sterna_graph_add_attention(NULL, &options, NULL, NULL));
}

/* A caller of an earlier version knows fewer options, one of a later version more. */
static void other_sizes(void) {
    struct {
        sterna_attention_options_t known;
        uint64_t later;
    } longer;
    memset(&longer, 0, sizeof longer);
    longer.known = plain();
    longer.known.struct_size = sizeof longer;
    longer.later = 1;
    refused(&longer.known, STERNA_STATUS_UNIMPLEMENTED, "behind those that this version");
    longer.later = 0;
    size_t ops[3], tensors[3];
    for (int i = 0; i < 3; i++) {
        sterna_graph_t *other;
        OK(sterna_graph_create(&other, STERNA_ENGINE_KIND_CPU));
        sterna_attention_options_t options = i == 0 ? plain() : longer.known;
        if (i == 2) {
            /* The bytes behind the size that it tells are not its. */
            options.struct_size = offsetof(sterna_attention_options_t, bias);
            memset((char *)&options + options.struct_size, 0xff, sizeof options - options.struct_size);
        }
        const sterna_attention_options_t *given = i == 1 ? &longer.known : &options;
        OK(sterna_graph_add_attention(other, given, &ops[i], &tensors[i]));
        OK(sterna_graph_destroy(other));
    }
    REQUIRE(ops[0] == ops[1] && ops[0] == ops[2] && tensors[0] == tensors[1] && tensors[0] == tensors[2]);
    REQUIRE(ops[0] > 3 && tensors[0] + 1 >= ops[0]);
}

static void ids(void) {
    sterna_attention_options_t options = plain();
    options.first_op_id = 5;
    options.causal = STERNA_CAUSAL_BOTTOM_RIGHT;
    size_t op_num, tensor_num, partitions;
    OK(sterna_graph_add_attention(graph, &options, &op_num, &tensor_num));
    refused(&options, STERNA_STATUS_INVALID_ARGUMENTS, "there already");
    options.first_tensor_id = 50 + tensor_num;
    refused(&options, STERNA_STATUS_INVALID_GRAPH_OP, "an op of this id is in the graph already");
    options.first_op_id = 5 + op_num;
    options.q = &desc[TO];
    options.dst = &desc[EXTRA];
    desc[EXTRA] = desc[TO];
    desc[EXTRA].id = EXTRA;
    OK(sterna_graph_add_attention(graph, &options, NULL, NULL));
    OK(sterna_graph_finalize(graph));
    OK(sterna_graph_filter(graph, STERNA_PARTITION_POLICY_DEBUG));
    OK(sterna_graph_get_partition_num(graph, &partitions));
    REQUIRE(partitions == 2 * op_num);
    refused(&options, STERNA_STATUS_INVALID_GRAPH, "the graph is finalized");
}

/* The gradients: what they need, and that they are one partition. */
static void backward(void) {
    sterna_graph_t *other;
    OK(sterna_graph_create(&other, STERNA_ENGINE_KIND_CPU));
    const sterna_attention_options_t forward = plain();
    sterna_logical_tensor_t gradients[4];
    for (size_t i = 0; i < 4; i++) {
        gradients[i] = desc[TO];
        gradients[i].id = 20 + i;
    }
    sterna_attention_backward_options_t options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.forward = &forward;
    options.d_dst = &gradients[0];
    size_t op_num = 77, tensor_num = 77, partitions;
#define IS_REFUSED(options, word)                                                                            \
    do {                                                                                                     \
        ENDS(INVALID_ARGUMENTS, sterna_graph_add_attention_backward(other, options, &op_num, &tensor_num));  \
        REQUIRE(strstr(sterna_last_error_message(), word) != NULL);                                          \
        REQUIRE(op_num == 77 && tensor_num == 77);                                                           \
    } while (0)
    IS_REFUSED(NULL, "`options` is null");
    IS_REFUSED(&options, "one of `d_q`, `d_k` and `d_v` is wanted");
    options.d_q = &gradients[1];
    sterna_attention_backward_options_t bad = options;
    bad.struct_size = offsetof(sterna_attention_backward_options_t, d_q) - 1;
    IS_REFUSED(&bad, "`struct_size`");
    bad = options;
    bad.forward = NULL;
    IS_REFUSED(&bad, "`forward` is null");
    bad = options;
    bad.d_dst = NULL;
    IS_REFUSED(&bad, "`d_dst` is null");
    bad = options;
    bad.d_k = &desc[EXTRA];
    IS_REFUSED(&bad, "gradients have the type of `q`");
    bad = options;
    bad.d_v = (const sterna_logical_tensor_t *)((const char *)&desc[Q] + 1);
    IS_REFUSED(&bad, "`d_v` is not aligned");
    options.d_k = &gradients[2];
    options.d_v = &gradients[3];
    OK(sterna_graph_add_attention_backward(other, &options, &op_num, &tensor_num));
    REQUIRE(op_num > 6 && tensor_num > 4);
    OK(sterna_graph_finalize(other));
    OK(sterna_graph_filter(other, STERNA_PARTITION_POLICY_FUSION));
    OK(sterna_graph_get_partition_num(other, &partitions));
    REQUIRE(partitions == 1);
    OK(sterna_graph_destroy(other));
}

/* Compiles and runs attention of four dims whose heads share keys; the values of the result go to `found`. */
static size_t run(sterna_attention_options_t options, const int64_t sizes[6], float *found, size_t room) {
    const int64_t batch = sizes[0], heads = sizes[1], queries = sizes[2], keys = sizes[3];
    const int64_t dims[4][4] = {{batch, heads, queries, sizes[4]},
                                {batch, heads / 2, keys, sizes[4]},
                                {batch, heads / 2, keys, sizes[5]},
                                {batch, heads, queries, sizes[5]}};
    sterna_logical_tensor_t own[4];
    for (size_t i = Q; i <= TO; i++) {
        own[i] = described(i, STERNA_DATA_TYPE_F32, 4, dims[i]);
    }
    options.q = &own[Q];
    options.k = &own[K];
    options.v = &own[V];
    options.dst = &own[TO];
    options.groups = 2;
    sterna_graph_t *other;
    sterna_partition_t *partition;
    sterna_compiled_partition_t *compiled;
    sterna_engine_t *engine;
    sterna_stream_t *stream;
    sterna_tensor_t *tensors[4];
    size_t partitions;
    OK(sterna_graph_create(&other, STERNA_ENGINE_KIND_CPU));
    OK(sterna_graph_add_attention(other, &options, NULL, NULL));
    OK(sterna_graph_finalize(other));
    OK(sterna_graph_filter(other, STERNA_PARTITION_POLICY_FUSION));
    OK(sterna_graph_get_partition_num(other, &partitions));
    REQUIRE(partitions == 1);
    OK(sterna_graph_get_partitions(other, 1, &partition));
    OK(sterna_engine_create(&engine, STERNA_ENGINE_KIND_CPU, 0));
    OK(sterna_stream_create(&stream, engine, STERNA_STREAM_FLAG_IN_ORDER));
    OK(sterna_compiled_partition_create(&compiled, partition));
    const sterna_logical_tensor_t *in[] = {&own[Q], &own[K], &own[V]}, *out[] = {&own[TO]};
    OK(sterna_partition_compile(partition, compiled, 3, in, 1, out, engine));
    size_t elements = 1;
    for (size_t i = Q; i <= TO; i++) {
        elements = 1;
        for (int dim = 0; dim < 4; dim++) {
            elements *= (size_t)dims[i][dim];
        }
        void *memory;
        OK(sterna_tensor_create(&tensors[i], &own[i], engine, STERNA_MEMORY_ALLOCATE));
        OK(sterna_tensor_get_data_handle(tensors[i], &memory));
        for (size_t at = 0; at < elements; at++) {
            ((float *)memory)[at] = (float)(at % 5) - 1.5f;
        }
    }
    const sterna_tensor_t *given[] = {tensors[Q], tensors[K], tensors[V]}, *result[] = {tensors[TO]};
    OK(sterna_compiled_partition_execute(compiled, stream, 3, given, 1, result));
    void *memory;
    OK(sterna_tensor_get_data_handle(tensors[TO], &memory));
    REQUIRE(elements <= room);
    if (elements > 0) {
        memcpy(found, memory, elements * sizeof *found);
    }
    for (size_t i = Q; i <= TO; i++) {
        OK(sterna_tensor_destroy(tensors[i]));
    }
    OK(sterna_stream_destroy(stream));
    OK(sterna_compiled_partition_destroy(compiled));
    OK(sterna_engine_destroy(engine));
    OK(sterna_partition_destroy(partition));
    OK(sterna_graph_destroy(other));
    return elements;
}

/* Any dim may be 0. Without keys a query gets 0, whatever is asked for; without depth, the mean of the values. */
static void dims_of_zero(void) {
    float found[2 * 4 * 5 * 6];
    for (int zero = 0; zero < 6; zero++) {
        int64_t sizes[] = {2, 4, 5, 7, 8, 6};
        sizes[zero] = 0;
        for (int nan = 0; nan < 2; nan++) {
            sterna_attention_options_t options = plain();
            options.nan_without_keys = nan;
            const size_t elements = run(options, sizes, found, sizeof found / sizeof *found);
            REQUIRE(elements == (size_t)(sizes[0] * sizes[1] * sizes[2] * sizes[5]));
            for (size_t at = 0; at < elements; at++) {
                REQUIRE(sizes[3] == 0 ? found[at] == 0 : isfinite(found[at]));
            }
        }
    }
    /* Of 5 queries at the end of 3 keys, the first two see none. */
    sterna_attention_options_t options = plain();
    options.causal = STERNA_CAUSAL_BOTTOM_RIGHT;
    const int64_t fewer[] = {2, 4, 5, 3, 8, 6};
    for (int nan = 0; nan < 2; nan++) {
        options.nan_without_keys = nan;
        const size_t elements = run(options, fewer, found, sizeof found / sizeof *found);
        for (size_t at = 0; at < elements; at++) {
            const int sees = at / 6 % 5 >= 2;
            REQUIRE(sees ? isfinite(found[at]) : nan ? isnan(found[at]) : found[at] == 0);
        }
    }
}

int main(void) {
    const int64_t dims[] = {2, 4, 6, 8};
    for (size_t i = Q; i <= TO; i++) {
        desc[i] = described(i, STERNA_DATA_TYPE_F32, 4, dims);
    }
    desc[EXTRA] = described(EXTRA, STERNA_DATA_TYPE_BOOLEAN, 4, dims);
    OK(sterna_graph_create(&graph, STERNA_ENGINE_KIND_CPU));
    bad_options();
    other_sizes();
    backward();
    dims_of_zero();
    ids();
    OK(sterna_graph_destroy(graph));
    return 0;
}
