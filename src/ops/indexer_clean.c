/* The operator indexer_clean: see smelt/indexer_clean.h. */
#include "smelt/indexer_clean.h"

#include "indexer_clean_fill.params.h"
#include "ops/call.h"
#include "ops/divide.h"
#include "ops/indexer_clean_table.h"
#include "runtime/log.h"

static smelt_status launch(struct smelt__call *call) {
    const smelt_indexer_clean_args *args = call->args;
    if (args->tokens == 0 || args->rows == 0)
        return SMELT_OK; /* an empty call's tensors are not checked */
    SMELT__TRY(smelt__call_check(call, 0, NULL, 0));
    const struct indexer_clean_fill_params params = {
        .window_begin = args->window_begin.data,
        .window_end = args->window_end.data,
        SMELT__TENSOR_T(logits, args->logits),
        .tokens = (int)args->tokens,
        .rows = (int)args->rows,
    };
    const int64_t parts = smelt__divide_up(args->rows, BLOCK_KEYS);
    return smelt__call_launch(call, call->op->kernels[0], args->tokens * parts,
                              args->free_multiprocessors, &params);
}

SMELT__OPERATOR(indexer_clean, forward, FORWARD, smelt_operator, NULL,
                .tables = &smelt__indexer_clean_table, .launch = launch)
