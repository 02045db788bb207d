/* Runs a model on inputs of zeros, and prints the shape of each output: `run_model model.onnx`. An open dim is 1. */
#include <stdio.h>
#include <stdlib.h>

#include <sterna_models.h>

#define CHECK(call, message)                                                                \
    do {                                                                                    \
        if ((call) != STERNA_STATUS_SUCCESS) {                                              \
            fprintf(stderr, "%s: %s\n", #call, message());                                  \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)
#define OK(call) CHECK(call, sterna_last_error_message)

enum { MOST = 64 };

int main(int count, char **arguments) {
    if (count != 2) {
        fprintf(stderr, "usage: run_model MODEL\n");
        return 2;
    }
    sterna_model_t *model;
    sterna_engine_t *engine;
    sterna_session_t *session;
    CHECK(sterna_models_open(&model, arguments[1], NULL), sterna_models_last_error_message);
    OK(sterna_engine_create(&engine, STERNA_ENGINE_KIND_CPU, 0));
    OK(sterna_session_create(&session, model, engine, NULL));
    sterna_model_destroy(model);

    sterna_named_view_t inputs[MOST];
    sterna_tensor_t *zeros[MOST], *outputs[MOST];
    static int64_t dims[MOST][STERNA_MAX_NDIMS];
    size_t input_num, output_num;
    OK(sterna_session_get_input_num(session, &input_num));
    OK(sterna_session_get_output_num(session, &output_num));
    if (input_num > MOST || output_num > MOST) {
        fprintf(stderr, "at most %d inputs and outputs\n", MOST);
        return 1;
    }
    for (size_t i = 0; i < input_num; i++) {
        sterna_logical_tensor_t desc;
        void *memory;
        OK(sterna_session_get_input(session, i, &inputs[i].name, &desc));
        const int32_t rank = desc.ndims < 0 ? 0 : desc.ndims;
        for (int32_t j = 0; j < rank; j++) {
            dims[i][j] = desc.dims[j] == STERNA_UNKNOWN_DIM ? 1 : desc.dims[j];
        }
        OK(sterna_logical_tensor_init_with_dims(&desc, i, desc.data_type, rank, dims[i], STERNA_LAYOUT_TYPE_STRIDED,
                                                STERNA_TENSOR_PROPERTY_VARIABLE));
        OK(sterna_tensor_create(&zeros[i], &desc, engine, STERNA_MEMORY_ALLOCATE));
        OK(sterna_tensor_get_data_handle(zeros[i], &memory));
        inputs[i].view = (sterna_view_t){memory, desc.data_type, rank, dims[i], NULL};
    }
    OK(sterna_session_run_new(session, input_num, inputs, output_num, outputs));
    for (size_t i = 0; i < output_num; i++) {
        const char *name;
        sterna_logical_tensor_t desc;
        OK(sterna_session_get_output(session, i, &name, &desc));
        OK(sterna_tensor_get_logical_tensor(outputs[i], &desc));
        printf("%s: %s", name, sterna_data_type_string(desc.data_type));
        for (int32_t j = 0; j < desc.ndims; j++) {
            printf("%s%lld", j == 0 ? " " : "x", (long long)desc.dims[j]);
        }
        printf("\n");
        sterna_tensor_destroy(outputs[i]);
    }
    for (size_t i = 0; i < input_num; i++) {
        sterna_tensor_destroy(zeros[i]);
    }
    sterna_session_destroy(session);
    sterna_engine_destroy(engine);
    return 0;
}
