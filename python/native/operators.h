/* What the files of the operators' tables have in common. */
#ifndef SMELT_PYTHON_OPERATORS_H
#define SMELT_PYTHON_OPERATORS_H

#include "native.h"

/* Rows of a pass's tables; ARGS is its args struct. */
#define TENSOR(field, shape, element, flags)                                                       \
    { #field, shape, element, flags, offsetof(ARGS, field) }
#define SCALAR(field, kind)                                                                        \
    { #field, kind, offsetof(ARGS, field) }
#define EXTENT(symbol, field)                                                                      \
    { symbol, offsetof(ARGS, field) }
#define COUNT(array) (int)(sizeof(array) / sizeof(array)[0])

/* Of operator `stem`: create, supported, destroy and launch by its public functions. `note` says
 * what the spec fixes, `call` is what launches: smelt_stem_forward, of most. */
#define OPERATOR_FUNCTIONS(stem, STEM, note)                                                       \
    OPERATOR_FUNCTIONS_WITH(stem, STEM, note, smelt_##stem##_forward)

#define OPERATOR_FUNCTIONS_WITH(stem, STEM, note, call)                                            \
    static smelt_status create_##stem(void **handle, smelt_context *context, const char *text,     \
                                      struct made *made) {                                         \
        smelt_##stem##_spec spec = SMELT_##STEM##_SPEC_INIT;                                       \
        smelt_##stem *op = NULL;                                                                   \
        char *knobs = NULL;                                                                        \
        smelt_status status = smelt_##stem##_spec_parse(text, &spec, &knobs);                      \
        if (!status)                                                                               \
            status = smelt_##stem##_create(&op, context, &spec);                                   \
        smelt_free(knobs);                                                                         \
        note(&spec, made);                                                                         \
        *handle = op;                                                                              \
        return status;                                                                             \
    }                                                                                              \
    static smelt_status supported_##stem(const smelt_context *context, const char *text,           \
                                         const char **why) {                                       \
        smelt_##stem##_spec spec = SMELT_##STEM##_SPEC_INIT;                                       \
        char *knobs = NULL;                                                                        \
        smelt_status status = smelt_##stem##_spec_parse(text, &spec, &knobs);                      \
        if (!status)                                                                               \
            status = smelt_##stem##_supported(context, &spec, why);                                \
        smelt_free(knobs);                                                                         \
        return status;                                                                             \
    }                                                                                              \
    static void destroy_##stem(void *handle) {                                                     \
        smelt_##stem *op = handle;                                                                 \
        smelt_##stem##_destroy(&op);                                                               \
    }                                                                                              \
    static smelt_status launch_##stem(const void *handle, const void *args,                        \
                                      struct CUstream_st *stream) {                                \
        return call(handle, args, stream);                                                         \
    }

/* The one pass of operator `stem`, of the tables of its name. */
#define OPERATOR_PASS(stem)                                                                        \
    .name = "forward", .args_bytes = sizeof(ARGS), .tensors = stem##_tensors,                      \
    .tensor_count = COUNT(stem##_tensors), .scalars = stem##_scalars,                              \
    .scalar_count = COUNT(stem##_scalars), .extents = stem##_extents,                              \
    .extent_count = COUNT(stem##_extents), .partition = -1, .launch = launch_##stem

#define OPERATOR_CLASS(stem, pass)                                                                 \
    const struct operator_class stem##_class = {                                                   \
        .name = #stem,                                                                             \
        .create = create_##stem,                                                                   \
        .supported = supported_##stem,                                                             \
        .destroy = destroy_##stem,                                                                 \
        .passes = {&pass},                                                                         \
    }

#endif
