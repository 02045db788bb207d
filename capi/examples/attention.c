/* Attention in a text model: prompts of different lengths at once, then one token after the other on a cache that
 * grows.
 *
 * Two graphs serve every shape, because they leave all dims open. Lengths are rounded up to buckets, and each bucket is
 * compiled once, for keys and values where they lie in the cache. Keys behind the end of a sequence are masked, so what
 * the cache holds there does not matter: it is NaN. */
#include <math.h>
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

/* GROUPS heads of queries share a head of keys. */
enum { BATCH = 2, HEADS = 2, GROUPS = 4, DEPTH = 16, ROOM = 128, BUCKET = 32, NEW_TOKENS = 24 };
enum { Q, K, V, OUT, MASK, OFFSET, BETWEEN, TENSORS = 64, PARTITIONS = 32 };

static const int prompts[BATCH] = {45, 20};
static float keys[BATCH][HEADS][ROOM][DEPTH], values[BATCH][HEADS][ROOM][DEPTH];
static float queries[BATCH * HEADS * GROUPS * ROOM * DEPTH], results[BATCH * HEADS * GROUPS * ROOM * DEPTH];

/* Stands for the model's projections: a number of a tensor at a position. */
static float projected(unsigned tensor, int entry, int head, int position, int column) {
    uint32_t at = (((tensor * BATCH + entry) * HEADS * GROUPS + head) * ROOM + position) * DEPTH + column;
    return (float)((at * 2654435761u >> 8) & 0xffff) / 32768.0f - 1.0f;
}

static void push(int entry, int position) {
    for (int head = 0; head < HEADS; head++) {
        for (int column = 0; column < DEPTH; column++) {
            keys[entry][head][position][column] = projected(K, entry, head, position, column);
            values[entry][head][position][column] = projected(V, entry, head, position, column);
        }
    }
}

/* The queries of positions from[entry] to from[entry] + count. */
static void ask(const int *from, int count) {
    float *to = queries;
    for (int row = 0; row < BATCH * HEADS * GROUPS * count; row++) {
        int entry = row / count / (HEADS * GROUPS), head = row / count % (HEADS * GROUPS);
        for (int column = 0; column < DEPTH; column++) {
            *to++ = projected(Q, entry, head, from[entry] + row % count, column);
        }
    }
}

/* Attention by definition, for one query: how far a row of the result is off. */
static double off(int entry, int head, int position, const float *row) {
    double weights[ROOM], sum = 0, worst = 0;
    for (int key = 0; key <= position; key++) {
        double dot = 0;
        for (int c = 0; c < DEPTH; c++) {
            dot += (double)projected(Q, entry, head, position, c) * projected(K, entry, head / GROUPS, key, c);
        }
        sum += weights[key] = exp(dot / sqrt(DEPTH));
    }
    for (int c = 0; c < DEPTH; c++) {
        double exact = 0;
        for (int key = 0; key <= position; key++) {
            exact += weights[key] / sum * projected(V, entry, head / GROUPS, key, c);
        }
        worst = isnan(row[c]) ? INFINITY : fmax(worst, fabs(exact - row[c]));
    }
    return worst;
}

static sterna_logical_tensor_t open_tensor(size_t id, sterna_data_type_t type) {
    sterna_logical_tensor_t desc;
    CHECK(sterna_logical_tensor_init(&desc, id, type, -1, STERNA_LAYOUT_TYPE_ANY, STERNA_TENSOR_PROPERTY_VARIABLE));
    return desc;
}

/* A tensor [batch, heads, groups, rows, depth]. */
static sterna_logical_tensor_t dense(size_t id, sterna_data_type_t type, int64_t heads, int64_t groups, int64_t rows,
                                     int64_t depth) {
    const int64_t dims[] = {BATCH, heads, groups, rows, depth};
    sterna_logical_tensor_t desc;
    CHECK(sterna_logical_tensor_init_with_dims(&desc, id, type, 5, dims, STERNA_LAYOUT_TYPE_STRIDED,
                                               STERNA_TENSOR_PROPERTY_VARIABLE));
    return desc;
}

/* The first positions of a cache, where they lie. */
static sterna_logical_tensor_t cached(size_t id, int64_t positions) {
    const int64_t dims[] = {BATCH, HEADS, 1, positions, DEPTH};
    const int64_t strides[] = {HEADS * ROOM * DEPTH, ROOM * DEPTH, ROOM * DEPTH, DEPTH, 1};
    sterna_logical_tensor_t desc;
    CHECK(sterna_logical_tensor_init_with_strides(&desc, id, STERNA_DATA_TYPE_F32, 5, dims, strides,
                                                  STERNA_TENSOR_PROPERTY_VARIABLE));
    return desc;
}

/* A graph whose partitions are compiled for one bucket after the other. */
struct attending {
    size_t count;
    sterna_partition_t *partitions[PARTITIONS];
    /* By bucket, as many as there are partitions. */
    sterna_compiled_partition_t *compiled[ROOM / BUCKET + 1][PARTITIONS];
};

static void make(struct attending *attending, const sterna_attention_options_t *options) {
    sterna_graph_t *graph;
    memset(attending, 0, sizeof *attending);
    CHECK(sterna_graph_create(&graph, STERNA_ENGINE_KIND_CPU));
    CHECK(sterna_graph_add_attention(graph, options, NULL, NULL));
    CHECK(sterna_graph_finalize(graph));
    CHECK(sterna_graph_filter(graph, STERNA_PARTITION_POLICY_FUSION));
    CHECK(sterna_graph_get_partition_num(graph, &attending->count));
    if (attending->count > PARTITIONS) {
        fprintf(stderr, "%zu partitions\n", attending->count);
        exit(1);
    }
    CHECK(sterna_graph_get_partitions(graph, attending->count, attending->partitions));
    CHECK(sterna_graph_destroy(graph));
}

/* Runs the graph on tensors, by id; what is between its partitions is made here. */
static void run(struct attending *attending, int bucket, sterna_engine_t *engine, sterna_tensor_t *tensors[TENSORS]) {
    sterna_stream_t *stream;
    CHECK(sterna_stream_create(&stream, engine, STERNA_STREAM_FLAG_IN_ORDER));
    for (size_t p = 0; p < attending->count; p++) {
        const sterna_partition_t *partition = attending->partitions[p];
        sterna_compiled_partition_t **compiled = &attending->compiled[bucket / BUCKET][p];
        size_t in_num, out_num;
        CHECK(sterna_partition_get_input_ports_num(partition, &in_num));
        CHECK(sterna_partition_get_output_ports_num(partition, &out_num));
        sterna_logical_tensor_t in[TENSORS], out[TENSORS];
        const sterna_logical_tensor_t *in_desc[TENSORS], *out_desc[TENSORS];
        const sterna_tensor_t *inputs[TENSORS], *outputs[TENSORS];
        CHECK(sterna_partition_get_input_ports(partition, in_num, in));
        CHECK(sterna_partition_get_output_ports(partition, out_num, out));
        for (size_t i = 0; i < in_num; i++) {
            inputs[i] = tensors[in[i].id];
            CHECK(sterna_tensor_get_logical_tensor(inputs[i], &in[i]));
            in_desc[i] = &in[i];
        }
        for (size_t i = 0; i < out_num; i++) {
            out_desc[i] = &out[i];
        }
        if (*compiled == NULL) {
            CHECK(sterna_compiled_partition_create(compiled, partition));
            CHECK(sterna_partition_compile(partition, *compiled, in_num, in_desc, out_num, out_desc, engine));
        }
        for (size_t i = 0; i < out_num; i++) {
            size_t id = out[i].id;
            CHECK(sterna_compiled_partition_query_logical_tensor(*compiled, id, &out[i]));
            CHECK(sterna_tensor_create(&tensors[id], &out[i], engine, id == OUT ? results : STERNA_MEMORY_ALLOCATE));
            outputs[i] = tensors[id];
        }
        CHECK(sterna_compiled_partition_execute(*compiled, stream, in_num, inputs, out_num, outputs));
    }
    for (size_t id = 0; id < TENSORS; id++) {
        CHECK(sterna_tensor_destroy(tensors[id]));
        tensors[id] = NULL;
    }
    CHECK(sterna_stream_destroy(stream));
}

static void destroy(struct attending *attending) {
    for (size_t p = 0; p < attending->count; p++) {
        CHECK(sterna_partition_destroy(attending->partitions[p]));
        for (size_t bucket = 0; bucket <= ROOM / BUCKET; bucket++) {
            CHECK(sterna_compiled_partition_destroy(attending->compiled[bucket][p]));
        }
    }
}

static int rounded_up(int length) {
    return (length + BUCKET - 1) / BUCKET * BUCKET;
}

static int longest(const int *lengths) {
    return lengths[0] > lengths[1] ? lengths[0] : lengths[1];
}

int main(void) {
    sterna_engine_t *engine;
    CHECK(sterna_engine_create(&engine, STERNA_ENGINE_KIND_CPU, 0));
    for (float *number = &keys[0][0][0][0]; number < &keys[0][0][0][0] + BATCH * HEADS * ROOM * DEPTH; number++) {
        *number = NAN;
    }
    memcpy(values, keys, sizeof keys);

    const sterna_logical_tensor_t q = open_tensor(Q, STERNA_DATA_TYPE_F32), k = open_tensor(K, STERNA_DATA_TYPE_F32),
                                  v = open_tensor(V, STERNA_DATA_TYPE_F32), dst = open_tensor(OUT, STERNA_DATA_TYPE_F32),
                                  mask = open_tensor(MASK, STERNA_DATA_TYPE_BOOLEAN),
                                  offset = open_tensor(OFFSET, STERNA_DATA_TYPE_S32);
    sterna_attention_options_t options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.q = &q;
    options.k = &k;
    options.v = &v;
    options.dst = &dst;
    options.first_tensor_id = BETWEEN;
    const float scale = 1 / sqrtf(DEPTH);
    options.scale = &scale; /* the graph does not know the depth */
    struct attending of_prompts, of_tokens;
    options.causal = STERNA_CAUSAL_TOP_LEFT;
    options.mask = &mask;
    make(&of_prompts, &options);
    options.causal = STERNA_CAUSAL_OFFSET;
    options.mask = NULL;
    options.offset = &offset;
    make(&of_tokens, &options);

    /* Prompts: a query sees the words up to its own, and none behind the end of its prompt. */
    sterna_tensor_t *tensors[TENSORS] = {NULL};
    sterna_logical_tensor_t desc;
    static uint8_t keeps[BATCH][ROOM];
    const int none[BATCH] = {0}, length = rounded_up(longest(prompts));
    for (int entry = 0; entry < BATCH; entry++) {
        for (int position = 0; position < prompts[entry]; position++) {
            push(entry, position);
            ((uint8_t *)keeps)[entry * length + position] = 1;
        }
    }
    ask(none, length);
    desc = dense(Q, STERNA_DATA_TYPE_F32, HEADS, GROUPS, length, DEPTH);
    CHECK(sterna_tensor_create(&tensors[Q], &desc, engine, queries));
    desc = cached(K, length);
    CHECK(sterna_tensor_create(&tensors[K], &desc, engine, keys));
    desc = cached(V, length);
    CHECK(sterna_tensor_create(&tensors[V], &desc, engine, values));
    desc = dense(MASK, STERNA_DATA_TYPE_BOOLEAN, 1, 1, 1, length);
    CHECK(sterna_tensor_create(&tensors[MASK], &desc, engine, keeps));
    run(&of_prompts, length, engine, tensors);
    double worst = 0;
    for (int row = 0; row < BATCH * HEADS * GROUPS * length; row++) {
        int entry = row / length / (HEADS * GROUPS), head = row / length % (HEADS * GROUPS), position = row % length;
        if (position < prompts[entry]) {
            worst = fmax(worst, off(entry, head, position, results + row * DEPTH));
        }
    }
    printf("prompts of %d and %d words, as %d\n", prompts[0], prompts[1], length);

    /* Tokens: the one query of an entry stands behind the keys so far, whose number is data. */
    int32_t lengths[BATCH] = {prompts[0], prompts[1]};
    for (int token = 0; token < NEW_TOKENS; token++) {
        for (int entry = 0; entry < BATCH; entry++) {
            push(entry, lengths[entry]);
        }
        ask(lengths, 1);
        const int bucket = rounded_up(longest(lengths) + 1);
        desc = dense(Q, STERNA_DATA_TYPE_F32, HEADS, GROUPS, 1, DEPTH);
        CHECK(sterna_tensor_create(&tensors[Q], &desc, engine, queries));
        desc = cached(K, bucket);
        CHECK(sterna_tensor_create(&tensors[K], &desc, engine, keys));
        desc = cached(V, bucket);
        CHECK(sterna_tensor_create(&tensors[V], &desc, engine, values));
        desc = dense(OFFSET, STERNA_DATA_TYPE_S32, 1, 1, 1, 1);
        CHECK(sterna_tensor_create(&tensors[OFFSET], &desc, engine, lengths));
        run(&of_tokens, bucket, engine, tensors);
        for (int row = 0; row < BATCH * HEADS * GROUPS; row++) {
            int entry = row / (HEADS * GROUPS), head = row % (HEADS * GROUPS);
            worst = fmax(worst, off(entry, head, lengths[entry], results + row * DEPTH));
        }
        lengths[0]++;
        lengths[1]++;
    }
    printf("%d tokens more, on buckets of", NEW_TOKENS);
    for (int bucket = 0; bucket <= ROOM / BUCKET; bucket++) {
        if (of_tokens.compiled[bucket][0] != NULL) {
            printf(" %d", bucket * BUCKET);
        }
    }
    printf(" keys, each compiled once\n");

    destroy(&of_prompts);
    destroy(&of_tokens);
    CHECK(sterna_engine_destroy(engine));
    if (!(worst < 1e-5)) {
        fprintf(stderr, "results are off by %g\n", worst);
        return 1;
    }
    return 0;
}
