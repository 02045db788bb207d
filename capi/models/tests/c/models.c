/* Models from files and bytes, of any lengths, with ops that the reader does not know; and wrong ones. The arguments are a
 * file of ONNX, a file of OpenVINO with its constants beside it, and a graph in JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sterna_models.h>

#define REQUIRE(condition)                                                                  \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "%s:%d: not so: %s (%s; %s)\n", __FILE__, __LINE__, #condition, \
                    sterna_last_error_message(), sterna_models_last_error_message());       \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)
#define OK(call) REQUIRE((call) == STERNA_STATUS_SUCCESS)

static void says(const char *text) {
    if (!strstr(sterna_models_last_error_message(), text)) {
        fprintf(stderr, "the message is \"%s\", without \"%s\"\n", sterna_models_last_error_message(), text);
        exit(1);
    }
}

static sterna_engine_t *engine;

/* A session of a model, which is destroyed. */
static sterna_session_t *session_of(sterna_model_t *model) {
    sterna_session_t *session;
    OK(sterna_session_create(&session, model, engine, NULL));
    OK(sterna_model_destroy(model));
    return session;
}

static size_t inputs_of(sterna_session_t *session) {
    size_t num;
    OK(sterna_session_get_input_num(session, &num));
    return num;
}

static void *file(const char *path, size_t *size) {
    FILE *from = fopen(path, "rb");
    REQUIRE(from && fseek(from, 0, SEEK_END) == 0);
    *size = (size_t)ftell(from);
    rewind(from);
    void *bytes = malloc(*size);
    REQUIRE(bytes && fread(bytes, 1, *size, from) == *size);
    fclose(from);
    return bytes;
}

static const char layer[] = "<layer type=\"Exp\"><input><port id=\"0\"><dim>-1</dim></port></input>"
                            "<output><port id=\"1\"/></output></layer>";

static void of_any_length(void) {
    sterna_model_t *model;
    const sterna_models_options_t options = {sizeof options, NULL, 0, 0, 0, NULL};
    OK(sterna_models_read_openvino(&model, layer, NULL, 0, &options));
    sterna_session_t *session = session_of(model);
    const float zeros[3] = {0};
    for (int64_t length = 0; length <= 3; length++) {
        float ones[3] = {0};
        const sterna_named_view_t in = {"data", {zeros, STERNA_DATA_TYPE_F32, 1, &length, NULL}};
        const sterna_named_view_mut_t out = {"dst", {ones, STERNA_DATA_TYPE_F32, 1, &length, NULL}};
        OK(sterna_session_run(session, 1, &in, 1, &out));
        for (int64_t i = 0; i < 3; i++) {
            REQUIRE(ones[i] == (i < length ? 1 : 0));
        }
    }
    OK(sterna_session_destroy(session));
}

static void wrong_ones(const char *onnx) {
    sterna_model_t *model = NULL;
    sterna_models_options_t options = {sizeof options + 8, NULL, 0, 0, 0, NULL};
    REQUIRE(sterna_models_open(&model, "no/such/file.onnx", NULL) == STERNA_STATUS_INVALID_ARGUMENTS);
    says("no/such/file.onnx");
    REQUIRE(sterna_models_open(&model, "no/such/file.json", NULL) == STERNA_STATUS_INVALID_ARGUMENTS);
    says("no/such/file.json");
    REQUIRE(sterna_models_open(&model, NULL, NULL) == STERNA_STATUS_INVALID_ARGUMENTS);
    says("`path` is null");
    REQUIRE(sterna_models_open(NULL, onnx, NULL) == STERNA_STATUS_INVALID_ARGUMENTS);
    REQUIRE(sterna_models_open(&model, onnx, &options) == STERNA_STATUS_INVALID_ARGUMENTS);
    says("struct_size");
    options.struct_size = sizeof options;
    options.dim_num = 2;
    REQUIRE(sterna_models_open(&model, onnx, &options) == STERNA_STATUS_INVALID_ARGUMENTS);
    REQUIRE(sterna_models_read_onnx(&model, "no model", 8, NULL) == STERNA_STATUS_INVALID_ARGUMENTS);
    REQUIRE(sterna_models_read_onnx(&model, NULL, 8, NULL) == STERNA_STATUS_INVALID_ARGUMENTS);
    REQUIRE(sterna_models_read_openvino(&model, "<layer", NULL, 0, NULL) == STERNA_STATUS_INVALID_ARGUMENTS);
    REQUIRE(model == NULL);
}

int main(int count, char **arguments) {
    REQUIRE(count == 4);
    OK(sterna_engine_create(&engine, STERNA_ENGINE_KIND_CPU, 0));
    sterna_model_t *model;
    sterna_models_options_t options = {sizeof options, NULL, 1, 0, 0, NULL};
    for (int i = 1; i < 4; i++) {
        OK(sterna_models_open(&model, arguments[i], i == 1 ? &options : NULL));
        sterna_session_t *session = session_of(model);
        REQUIRE(inputs_of(session) > 0);
        OK(sterna_session_destroy(session));
    }
    size_t size;
    void *bytes = file(arguments[1], &size);
    OK(sterna_models_read_onnx(&model, bytes, size, NULL));
    free(bytes);
    sterna_session_t *session = session_of(model);
    REQUIRE(inputs_of(session) > 0);
    OK(sterna_session_destroy(session));
    of_any_length();
    wrong_ones(arguments[1]);
    OK(sterna_engine_destroy(engine));
    return 0;
}
