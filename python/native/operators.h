/* What the files of the operators' tables have in common. */
#ifndef SMELT_PYTHON_OPERATORS_H
#define SMELT_PYTHON_OPERATORS_H

#include "native.h"

#include <smelt/operator.h>

/* Rows of a pass's tables; ARGS is its args struct. */
#define TENSOR(field, shape, element, flags)                                                       \
    { #field, shape, sizeof(shape) - 1, element, flags, offsetof(ARGS, field) }
#define SCALAR(field, kind)                                                                        \
    { #field, kind, offsetof(ARGS, field), 0 }
/* An extent that no tensor of the call need have: Python gives it. */
#define GIVEN(field, letter)                                                                       \
    { #field, SYMBOL, 0, letter }
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
        smelt_operator *op = NULL;                                                                 \
        const smelt_status status = smelt_operator_create(&op, context, text);                     \
        if (!status)                                                                               \
            note(text, made);                                                                      \
        *handle = op;                                                                              \
        return status;                                                                             \
    }                                                                                              \
    static smelt_status supported_##stem(const smelt_context *context, const char *text,           \
                                         const char **why) {                                       \
        return smelt_operator_supported(context, text, why);                                       \
    }                                                                                              \
    static void destroy_##stem(void *handle) {                                                     \
        smelt_operator *op = handle;                                                               \
        smelt_operator_destroy(&op);                                                               \
    }                                                                                              \
    static smelt_status launch_##stem(const void *handle, const void *args,                        \
                                      struct CUstream_st *stream) {                                \
        return call(handle, args, stream);                                                         \
    }

/* What attention's operators read, in the order in which Python gives it. */
#define ATTENTION_INPUTS                                                                           \
    TENSOR(q, "BTHQ", BF16, ROWS), TENSOR(kv, "BSQ", BF16, ROWS),                                  \
        TENSOR(indices, "BTW", INT32, 0), TENSOR(topk_length, "BT1", INT32, OPTIONAL),             \
        TENSOR(sink, "H", FP32, OPTIONAL), TENSOR(queries, "N", INT32, OPTIONAL),                  \
        TENSOR(query_count, "1", INT32, OPTIONAL)
#define ATTENTION_EXTENTS                                                                          \
    EXTENT('B', batches), EXTENT('T', tokens), EXTENT('S', rows), EXTENT('W', width),              \
        EXTENT('N', query_capacity)

/* What a spec fixes: NOTE(stem, FIX('H', heads) FIX('D', dim)) */
static inline int64_t key_of(const char *spec, const char *key) {
    int64_t value = 0;
    return smelt_spec_get(spec, key, &value) == SMELT_OK ? value : 0;
}
#define FIX(symbol, field) made->extents[symbol - 'A'] = key_of(spec, #field);
#define NOTE(stem, fixes)                                                                          \
    static void note_##stem(const char *spec, struct made *made) {                                 \
        (void)spec, (void)made;                                                                    \
        fixes                                                                                      \
    }

/* How much workspace a pass asks for, by the public function `call`. */
#define WORKSPACE_FUNCTION(stem, call)                                                             \
    static smelt_status workspace_##stem(const void *handle, const void *args, size_t *bytes) {    \
        return call(handle, args, bytes);                                                          \
    }
#define WORKSPACE(stem, alignment)                                                                 \
    .workspace_offset = offsetof(ARGS, workspace),                                                 \
    .workspace_size = offsetof(ARGS, workspace_bytes), .workspace_alignment = (alignment),         \
    .workspace = workspace_##stem

/* A pass of the tables of name `stem`. */
#define PASS(stem)                                                                                 \
    .args_bytes = sizeof(ARGS), .tensors = stem##_tensors, .tensor_count = COUNT(stem##_tensors),  \
    .scalars = stem##_scalars, .scalar_count = COUNT(stem##_scalars), .extents = stem##_extents,   \
    .extent_count = COUNT(stem##_extents)

/* Operator `stem` of one pass, of the tables of its name; `more`: what else its pass says. */
#define OPERATOR_OF(stem, STEM, call, more)                                                        \
    OPERATOR_FUNCTIONS_WITH(stem, STEM, note_##stem, call)                                         \
    static struct pass stem##_pass = {                                                             \
        .name = "forward", PASS(stem), .partition = -1, .launch = launch_##stem, more};            \
    const struct operator_class stem##_class = {                                                   \
        .name = #stem,                                                                             \
        .create = create_##stem,                                                                   \
        .supported = supported_##stem,                                                             \
        .destroy = destroy_##stem,                                                                 \
        .passes = {&stem##_pass},                                                                  \
    }
#define OPERATOR(stem, STEM) OPERATOR_OF(stem, STEM, smelt_##stem##_forward, )
#define OPERATOR_WITH_WORKSPACE(stem, STEM, call)                                                  \
    WORKSPACE_FUNCTION(stem, call##_workspace)                                                     \
    OPERATOR_OF(stem, STEM, call, WORKSPACE(stem, 256))

#endif
