/* The operator indexer_scores: see smelt/indexer_scores.h. */
#include "smelt/indexer_scores.h"

#include "codegen/families/indexer_keys.h"
#include "common/work.params.h"
#include "indexer_scores_fwd.params.h"
#include "ops/call.h"
#include "ops/indexer_scores_table.h"
#include "runtime/log.h"

static struct indexer_scores_fwd_params pack(const smelt_indexer_scores_args *args, int granularity,
                                             int weights_bf16) {
    return (struct indexer_scores_fwd_params){
        .work = {.indices = args->indices.data,
                 SMELT__TENSOR_T(topk_length, args->topk_length),
                 .indices_token_stride = args->indices.strides[0],
                 .batches = 1,
                 .tokens = (int)args->tokens,
                 .rows = (int)args->rows,
                 .width = (int)args->width * granularity,
                 .query_capacity = (int)args->tokens},
        SMELT__TENSOR_TH(q, args->q),
        .k = args->k.data,
        SMELT__TENSOR_T(weights, args->weights),
        SMELT__TENSOR_T(logits, args->logits),
        .k_row_bytes = 2 * (unsigned)args->k.strides[0],
        .weights_bf16 = weights_bf16,
        .limit = args->limit.data,
        .keys = args->keys.data,
        .limit_token_stride = args->limit.strides[0],
        .keys_token_stride = args->keys.strides[0],
    };
}

static smelt_status launch(struct smelt__call *call) {
    const smelt_indexer_scores_args *args = call->args;
    if (args->tokens == 0)
        return SMELT_OK; /* an empty call's tensors are not checked */
    if (smelt__spec_get(&call->op->spec, "block_max") == 1 && args->keys.data)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "keys is given but the operator was made with block_max=1; make one "
                           "with block_max above 1, or pass NULL");
    SMELT__TRY(smelt__call_check(call, 0, NULL, 0));
    const struct indexer_scores_fwd_params params =
        pack(args, (int)smelt__spec_get(&call->op->spec, "granularity"),
             smelt__spec_get(&call->op->spec, "weights_dtype") == SMELT__INDEXER_WEIGHTS_BF16);
    return smelt__call_launch(call, call->op->kernels[0], args->tokens, args->free_multiprocessors,
                              &params);
}

SMELT__OPERATOR(indexer_scores, forward, FORWARD, smelt_operator, NULL,
                .tables = smelt__indexer_scores_table, .launch = launch)
