/* Runs a model of ONNX: `run_onnx import/tests/data/classifier.onnx`. */
#include <stdio.h>

#include <sterna_models.h>

int main(int count, char **arguments) {
    sterna_model_t *model = NULL;
    sterna_engine_t *engine = NULL;
    sterna_session_t *session = NULL;
    sterna_tensor_t *y = NULL;
    void *classes = NULL;
    float x[] = {1, 2, 3, 4, 4, 3, 2, 1};
    const int64_t dims[] = {2, 4};

    const sterna_named_view_t in = {"x", {x, STERNA_DATA_TYPE_F32, 2, dims, NULL}};
    const int is_read = count == 2 && sterna_models_open(&model, arguments[1], NULL) == STERNA_STATUS_SUCCESS;
    const int has_run = is_read && sterna_engine_create(&engine, STERNA_ENGINE_KIND_CPU, 0) == STERNA_STATUS_SUCCESS
            && sterna_session_create(&session, model, engine, NULL) == STERNA_STATUS_SUCCESS
            && sterna_session_run_new(session, 1, &in, 1, &y) == STERNA_STATUS_SUCCESS
            && sterna_tensor_get_data_handle(y, &classes) == STERNA_STATUS_SUCCESS;
    if (!has_run) fprintf(stderr, "%s\n", is_read ? sterna_last_error_message() : sterna_models_last_error_message());
    for (int i = 0; has_run && i < 6; i++) printf("%.3f%c", ((const float *)classes)[i], i == 5 ? '\n' : ' ');

    sterna_tensor_destroy(y);
    sterna_session_destroy(session);
    sterna_engine_destroy(engine);
    sterna_model_destroy(model);
    return !has_run;
}
