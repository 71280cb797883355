/* The operator indexer_windows: see smelt/indexer_windows.h. */

#include "codegen/families/indexer_windows.h"
#include "indexer_windows_build.params.h"
#include "ops/arguments.h"
#include "ops/indexer_windows_tensors.h"
#include "ops/operator.h"
#include "runtime/log.h"
#include "smelt/indexer_windows.h"

enum { MOST_DOCUMENTS = 1 << 30 };

struct smelt_indexer_windows {
    struct smelt__operator kernels;
};

_Static_assert(sizeof(smelt_indexer_windows_spec) <= SMELT__MOST_SPEC_BYTES,
               "operator.c copies it");

/* ---- the spec -------------------------------------------------------------------------------- */

static const struct smelt__struct spec_struct = SMELT__STRUCT_VALUE(
    smelt_indexer_windows_spec, "spec", "SMELT_INDEXER_WINDOWS_SPEC_INIT", knobs);

static const struct smelt__spec_table spec_table = {
    .family = &smelt__indexer_windows,
    .about = &spec_struct,
    .object = "windows",
    .object_bytes = sizeof(smelt_indexer_windows),
    .knobs = offsetof(smelt_indexer_windows_spec, knobs),
};

smelt_status smelt_indexer_windows_spec_print(const smelt_indexer_windows_spec *spec, char **text) {
    return smelt__operator_print_spec(&spec_table, spec, text);
}

smelt_status smelt_indexer_windows_spec_parse(const char *text, smelt_indexer_windows_spec *spec,
                                              char **knobs) {
    return smelt__operator_parse_spec(&spec_table, text, spec, knobs);
}

smelt_status smelt_indexer_windows_supported(const smelt_context *context,
                                             const smelt_indexer_windows_spec *spec,
                                             const char **why) {
    return smelt__operator_supported(&spec_table, context, spec, why);
}

/* ---- the operator ---------------------------------------------------------------------------- */

smelt_status smelt_indexer_windows_create(smelt_indexer_windows **windows, smelt_context *context,
                                          const smelt_indexer_windows_spec *given) {
    return smelt__operator_create(&spec_table, windows, context, given, NULL);
}

void smelt_indexer_windows_destroy(smelt_indexer_windows **windows) {
    smelt__operator_destroy(windows);
}

smelt_status smelt_indexer_windows_get_kernel_info(const smelt_indexer_windows *windows, int index,
                                                   smelt_kernel_info *info) {
    if (!windows)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "windows is NULL");
    return smelt__operator_get_kernel_info(&windows->kernels, SMELT_PASS_FORWARD, index, info);
}

/* ---- launching ------------------------------------------------------------------------------- */

/* This library's copy of the arguments, checked. */
static smelt_status read_args(const smelt_indexer_windows_args *given,
                              smelt_indexer_windows_args *args) {
    smelt_status status =
        smelt__struct_read(SMELT__STRUCT(smelt_indexer_windows_args, "args",
                                         "SMELT_INDEXER_WINDOWS_ARGS_INIT", window_end),
                           given, args);
    if (status == SMELT_OK)
        status = smelt__check_extent("tokens", args->tokens, 0, INT32_MAX);
    if (status == SMELT_OK)
        status = smelt__check_extent("rows", args->rows, 0, INT32_MAX);
    if (status == SMELT_OK)
        status = smelt__check_extent("documents", args->documents, 0, MOST_DOCUMENTS);
    if (status == SMELT_OK)
        status = smelt__check_extent("ratio", args->ratio, 0, INT32_MAX);
    if (status == SMELT_OK)
        status = smelt__check_extent("reserved", args->reserved, 0, 0);
    if (status != SMELT_OK || args->tokens == 0)
        return status;
    const int64_t extents[SMELT__INDEXER_WINDOWS_SYMBOLS] = {args->tokens, args->documents,
                                                             args->documents + 1};
    return smelt__check_tensors(&smelt__indexer_windows_tensors, SMELT_PASS_FORWARD, extents, args,
                                NULL, 0);
}

smelt_status smelt_indexer_windows_forward(const smelt_indexer_windows *windows,
                                           const smelt_indexer_windows_args *given,
                                           struct CUstream_st *stream) {
    smelt_indexer_windows_args args;
    if (!windows)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "windows is NULL");
    smelt_status status = read_args(given, &args);
    if (status != SMELT_OK || args.tokens == 0)
        return status;
    const struct indexer_windows_build_params params = {
        .cu_seqlens = args.cu_seqlens.data,
        .cu_seqlens_padded = args.cu_seqlens_padded.data,
        .cu_seqlens_keys = args.cu_seqlens_keys.data,
        .causal_offset = args.causal_offset.data,
        .query_indices = args.query_indices.data,
        .window_begin = args.window_begin.data,
        .window_end = args.window_end.data,
        .tokens = (int)args.tokens,
        .documents = (int)args.documents,
        .rows = (int)args.rows,
        .ratio = args.ratio ? args.ratio : 1,
    };
    const struct smelt__kernel *kernel = windows->kernels.kernels[0];
    const int64_t tiles = (args.tokens + kernel->threads - 1) / kernel->threads;
    const struct smelt__launch launch = {
        .blocks = {(uint32_t)(tiles < kernel->resident_blocks ? tiles : kernel->resident_blocks)},
        .params = &params};
    return smelt__kernel_launch(windows->kernels.context, kernel, &launch, stream);
}
