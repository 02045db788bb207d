/*
 * Readers of models for sterna.h: ONNX, OpenVINO IR, and graphs in JSON.
 *
 * A library of its own, which a program links before the other: -lsterna_models -lsterna. It runs nothing: a model that
 * it gives is one of sterna.h, whose constants stay in the files or the memory that they came from, and is given back to
 * sterna_model_destroy.
 *
 * Each function answers with a status of sterna.h and writes to its first argument only if it succeeds.
 * sterna_models_last_error_message says in a sentence what was wrong. Any thread may call at any time.
 */

#ifndef STERNA_MODELS_H
#define STERNA_MODELS_H

#include "sterna.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * A length of an open dim that has a name, as dims of ONNX do.
 */
typedef struct sterna_models_dim_t {
    const char *name;
    int64_t length;
} sterna_models_dim_t;

/**
 * The options of the readers, null for none.
 *
 * Set all bytes to 0, then `struct_size` to the size of the struct, then what is wanted.
 */
typedef struct sterna_models_options_t {
    /**
     * The size of this struct where the caller was compiled.
     */
    size_t struct_size;
    /**
     * The file of constants of a model of OpenVINO; null for the one beside it, `model.bin` of `model.xml`.
     */
    const char *constants;
    /**
     * Unless 0, files are read instead of mapped: they may be changed or cut off as soon as they have been read.
     */
    int own_constants;
    /**
     * Unless 0, a layer that the reader does not know becomes an op of the caller's own, `domain::Type`, or `Type` in
     * the domain of the format itself, which a session needs; otherwise it is an error.
     */
    int partial;
    /**
     * The number of named dims that are given lengths. All others stay open: a session takes inputs of any lengths.
     */
    size_t dim_num;
    /**
     * The named dims.
     */
    const sterna_models_dim_t *dims;
} sterna_models_options_t;

/**
 * Opens a file: `*.json` as a graph, all others as a model of OpenVINO if they begin as XML does, else of ONNX.
 *
 * Files that hold constants are mapped. They must not be changed or cut off while the model, or a session of it, is
 * alive; `own_constants` reads them instead.
 */
sterna_status_t sterna_models_open(sterna_model_t **model, const char *path, const sterna_models_options_t *options);

/**
 * Reads a model of ONNX of `size` bytes, which are not needed any more.
 */
sterna_status_t sterna_models_read_onnx(sterna_model_t **model, const void *data, size_t size,
                                        const sterna_models_options_t *options);

/**
 * Reads a model of OpenVINO: its text, and its constants of `size` bytes, neither of which is needed any more.
 */
sterna_status_t sterna_models_read_openvino(sterna_model_t **model, const char *xml, const void *data, size_t size,
                                            const sterna_models_options_t *options);

/**
 * The sentence of the last call that failed on this thread; empty if none did. The text is valid until the next.
 */
const char *sterna_models_last_error_message(void);

#ifdef __cplusplus
}
#endif

#endif
