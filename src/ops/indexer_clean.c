/* The operator indexer_clean: see smelt/indexer_clean.h. */
#include "smelt/indexer_clean.h"

#include "codegen/families/indexer_clean.h"
#include "indexer_clean_fill.params.h"
#include "ops/arguments.h"
#include "ops/indexer_clean_tensors.h"
#include "ops/operator.h"
#include "runtime/log.h"

struct smelt_indexer_clean {
    struct smelt__operator kernels;
};

_Static_assert(sizeof(smelt_indexer_clean_spec) <= SMELT__MOST_SPEC_BYTES, "operator.c copies it");

/* ---- the spec -------------------------------------------------------------------------------- */

static const struct smelt__struct spec_struct =
    SMELT__STRUCT_VALUE(smelt_indexer_clean_spec, "spec", "SMELT_INDEXER_CLEAN_SPEC_INIT", knobs);

static const struct smelt__spec_table spec_table = {
    .family = &smelt__indexer_clean,
    .about = &spec_struct,
    .object = "clean",
    .object_bytes = sizeof(smelt_indexer_clean),
    .knobs = offsetof(smelt_indexer_clean_spec, knobs),
};

smelt_status smelt_indexer_clean_spec_print(const smelt_indexer_clean_spec *spec, char **text) {
    return smelt__operator_print_spec(&spec_table, spec, text);
}

smelt_status smelt_indexer_clean_spec_parse(const char *text, smelt_indexer_clean_spec *spec,
                                            char **knobs) {
    return smelt__operator_parse_spec(&spec_table, text, spec, knobs);
}

smelt_status smelt_indexer_clean_supported(const smelt_context *context,
                                           const smelt_indexer_clean_spec *spec, const char **why) {
    return smelt__operator_supported(&spec_table, context, spec, why);
}

/* ---- the operator ---------------------------------------------------------------------------- */

smelt_status smelt_indexer_clean_create(smelt_indexer_clean **clean, smelt_context *context,
                                        const smelt_indexer_clean_spec *given) {
    return smelt__operator_create(&spec_table, clean, context, given, NULL);
}

void smelt_indexer_clean_destroy(smelt_indexer_clean **clean) {
    smelt__operator_destroy(clean);
}

smelt_status smelt_indexer_clean_get_kernel_info(const smelt_indexer_clean *clean, int index,
                                                 smelt_kernel_info *info) {
    if (!clean)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "clean is NULL");
    return smelt__operator_get_kernel_info(&clean->kernels, SMELT_PASS_FORWARD, index, info);
}

/* ---- launching ------------------------------------------------------------------------------- */

/* This library's copy of the arguments, checked. */
static smelt_status read_args(const smelt_indexer_clean_args *given,
                              smelt_indexer_clean_args *args) {
    smelt_status status = smelt__struct_read(
        SMELT__STRUCT(smelt_indexer_clean_args, "args", "SMELT_INDEXER_CLEAN_ARGS_INIT", logits),
        given, args);
    if (status == SMELT_OK)
        status = smelt__check_extent("tokens", args->tokens, 0, INT32_MAX);
    if (status == SMELT_OK)
        status = smelt__check_extent("rows", args->rows, 0, INT32_MAX);
    if (status == SMELT_OK)
        status =
            smelt__check_extent("free_multiprocessors", args->free_multiprocessors, 0, INT32_MAX);
    if (status == SMELT_OK)
        status = smelt__check_extent("reserved", args->reserved, 0, 0);
    if (status != SMELT_OK || args->tokens == 0 || args->rows == 0)
        return status; /* of an empty call no tensor is looked at */
    const int64_t extents[SMELT__INDEXER_CLEAN_SYMBOLS] = {args->tokens, args->rows};
    return smelt__check_tensors(&smelt__indexer_clean_tensors, SMELT_PASS_FORWARD, extents, args,
                                NULL, 0);
}

smelt_status smelt_indexer_clean_forward(const smelt_indexer_clean *clean,
                                         const smelt_indexer_clean_args *given,
                                         struct CUstream_st *stream) {
    smelt_indexer_clean_args args;
    if (!clean)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "clean is NULL");
    smelt_status status = read_args(given, &args);
    if (status != SMELT_OK || args.tokens == 0 || args.rows == 0)
        return status;
    const struct indexer_clean_fill_params params = {
        .window_begin = args.window_begin.data,
        .window_end = args.window_end.data,
        .logits = args.logits.data,
        .logits_token_stride = args.logits.strides[0],
        .tokens = (int)args.tokens,
        .rows = (int)args.rows,
    };
    const struct smelt__kernel *kernel = clean->kernels.kernels[0];
    const int64_t parts = (args.rows - 1) / SMELT__INDEXER_CLEAN_KEYS + 1;
    const int64_t most = smelt__blocks_beside(kernel, args.free_multiprocessors);
    const struct smelt__launch launch = {
        .blocks = {smelt__blocks_for(kernel, args.tokens * parts, most)}, .params = &params};
    return smelt__kernel_launch(clean->kernels.context, kernel, &launch, stream);
}
