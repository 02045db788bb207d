/* Generates tokens with a decoder that was exported to ONNX with its cache: the prompt at once, then one token after the
 * other, always the likeliest. The keys and values stay in a state of the session.
 *
 * `text_generation model.onnx 576,659,1771 100` */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sterna_models.h>

#define CHECK(call, message)                                                                \
    do {                                                                                    \
        if ((call) != STERNA_STATUS_SUCCESS) {                                              \
            fprintf(stderr, "%s: %s\n", #call, message());                                  \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)
#define OK(call) CHECK(call, sterna_last_error_message)

enum { MOST = 4096, MOST_PORTS = 256 };

static int64_t mask[MOST], positions[MOST];

/* True if the session has an input of a name. */
static int has_input(const sterna_session_t *session, const char *wanted) {
    size_t num;
    OK(sterna_session_get_input_num(session, &num));
    for (size_t i = 0; i < num; i++) {
        const char *name;
        sterna_logical_tensor_t desc;
        OK(sterna_session_get_input(session, i, &name, &desc));
        if (strcmp(name, wanted) == 0) {
            return 1;
        }
    }
    return 0;
}

/* The likeliest token of the last row of logits. */
static int64_t likeliest(sterna_tensor_t *logits) {
    sterna_logical_tensor_t desc;
    void *data;
    OK(sterna_tensor_get_logical_tensor(logits, &desc));
    OK(sterna_tensor_get_data_handle(logits, &data));
    const int64_t words = desc.dims[desc.ndims - 1];
    const float *row = (const float *)data + (desc.dims[desc.ndims - 2] - 1) * words;
    int64_t best = 0;
    for (int64_t i = 1; i < words; i++) {
        best = row[i] > row[best] ? i : best;
    }
    return best;
}

/* The likeliest token behind some tokens of one sequence. */
static int64_t next(const sterna_session_t *session, sterna_session_state_t *state, const int64_t *tokens,
                    int64_t count) {
    size_t past, output_num, given = 0;
    OK(sterna_session_state_get_row_num(state, &past));
    const int64_t dims[] = {1, count}, all_dims[] = {1, (int64_t)past + count};
    if (all_dims[1] > MOST) {
        fprintf(stderr, "at most %d tokens\n", MOST);
        exit(1);
    }
    for (int64_t i = 0; i < count; i++) {
        positions[i] = (int64_t)past + i;
    }
    const sterna_named_view_t all[] = {{"input_ids", {tokens, STERNA_DATA_TYPE_S64, 2, dims, NULL}},
                                       {"attention_mask", {mask, STERNA_DATA_TYPE_S64, 2, all_dims, NULL}},
                                       {"position_ids", {positions, STERNA_DATA_TYPE_S64, 2, dims, NULL}}};
    sterna_named_view_t inputs[3];
    for (int i = 0; i < 3; i++) {
        if (has_input(session, all[i].name)) {
            inputs[given++] = all[i];
        }
    }
    sterna_tensor_t *outputs[MOST_PORTS];
    OK(sterna_session_get_output_num(session, &output_num));
    if (output_num > MOST_PORTS) {
        fprintf(stderr, "at most %d outputs\n", MOST_PORTS);
        exit(1);
    }
    OK(sterna_session_state_run_new(state, session, given, inputs, output_num, outputs));
    int64_t token = -1;
    for (size_t i = 0; i < output_num; i++) {
        const char *name;
        sterna_logical_tensor_t desc;
        OK(sterna_session_get_output(session, i, &name, &desc));
        if (outputs[i] && strcmp(name, "logits") == 0) {
            token = likeliest(outputs[i]);
        }
        sterna_tensor_destroy(outputs[i]);
    }
    return token;
}

int main(int count, char **arguments) {
    if (count < 2 || count > 4) {
        fprintf(stderr, "usage: text_generation MODEL [TOKEN,... [STEPS]]\n");
        return 2;
    }
    int64_t prompt[MOST], length = 0;
    for (char *word = count > 2 ? arguments[2] : (char[]){"1,2,3,4"}; *word && length < MOST; length++) {
        prompt[length] = strtoll(word, &word, 10);
        word += *word == ',';
    }
    const int steps = count > 3 ? atoi(arguments[3]) : 100;
    for (int i = 0; i < MOST; i++) {
        mask[i] = 1;
    }
    sterna_model_t *model;
    sterna_engine_t *engine;
    sterna_session_t *session;
    sterna_session_state_t *state;
    sterna_session_options_t options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.find_states = 1;
    CHECK(sterna_models_open(&model, arguments[1], NULL), sterna_models_last_error_message);
    OK(sterna_engine_create(&engine, STERNA_ENGINE_KIND_CPU, 0));
    OK(sterna_session_create(&session, model, engine, &options));
    sterna_model_destroy(model);
    OK(sterna_session_state_create(&state, session, 0, NULL));

    int64_t token = next(session, state, prompt, length);
    for (int step = 0; step < steps; step++) {
        printf("%lld%c", (long long)token, step + 1 < steps ? ' ' : '\n');
        token = next(session, state, &token, 1);
    }
    sterna_session_state_destroy(state);
    sterna_session_destroy(session);
    sterna_engine_destroy(engine);
    return 0;
}
