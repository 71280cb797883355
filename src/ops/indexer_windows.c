/* The operator indexer_windows: see smelt/indexer_windows.h. */
#include "smelt/indexer_windows.h"

#include "indexer_windows_build.params.h"
#include "ops/call.h"
#include "ops/divide.h"
#include "ops/indexer_windows_table.h"
#include "runtime/log.h"

static smelt_status launch(struct smelt__call *call) {
    const smelt_indexer_windows_args *args = call->args;
    if (args->tokens == 0)
        return SMELT_OK; /* an empty call's tensors are not checked */
    SMELT__TRY(smelt__call_check(call, 0, NULL, 0));
    const struct indexer_windows_build_params params = {
        .cu_seqlens = args->cu_seqlens.data,
        .cu_seqlens_padded = args->cu_seqlens_padded.data,
        .cu_seqlens_keys = args->cu_seqlens_keys.data,
        .causal_offset = args->causal_offset.data,
        .query_indices = args->query_indices.data,
        .window_begin = args->window_begin.data,
        .window_end = args->window_end.data,
        .tokens = (int)args->tokens,
        .documents = (int)args->documents,
        .rows = (int)args->rows,
        .ratio = args->ratio,
    };
    const struct smelt__kernel *kernel = call->op->kernels[0];
    const int64_t tiles = smelt__divide_up(args->tokens, kernel->threads);
    const struct smelt__launch one = {
        .blocks = {(uint32_t)(tiles < kernel->resident_blocks ? tiles : kernel->resident_blocks)},
        .params = &params};
    return smelt__kernel_launch(call->op->context, kernel, &one, call->stream);
}

SMELT__OPERATOR(indexer_windows, forward, FORWARD, smelt_operator, NULL,
                .tables = &smelt__indexer_windows_table, .launch = launch)
