/* The operator sparse_scores: see smelt/sparse_scores.h. */
#include "smelt/sparse_scores.h"

#include "ops/attention_call.h"
#include "ops/call.h"
#include "ops/sparse_scores_table.h"
#include "runtime/log.h"
#include "sparse_scores_fwd.params.h"

static void fill(const smelt_sparse_scores_args *args, const struct smelt__attention_call *call,
                 int64_t queries, struct sparse_scores_fwd_params *params) {
    *params = (struct sparse_scores_fwd_params){
        .work = smelt__attention_work(call, queries),
        SMELT__TENSOR_BTH(q, args->q),
        .kv = args->kv.data,
        SMELT__TENSOR_BTH(lse, args->lse),
        .sink = args->sink.data,
        .target = args->target.data,
        .kv_batch_stride = args->kv.strides[0],
        .target_batch_stride = args->target.strides[0],
        .target_token_stride = args->target.strides[1],
        .kv_row_bytes = args->rows > 1 ? (unsigned)(args->kv.strides[1] * 2) : 0,
        .scale = args->scale,
    };
}

static smelt_status launch(struct smelt__call *call) {
    const smelt_sparse_scores_args *args = call->args;
    const struct smelt__attention_call fields = SMELT__ATTENTION_CALL(args);
    struct sparse_scores_fwd_params params;
    int64_t queries;
    SMELT__TRY(smelt__attention_check_forward(call, &fields, &queries));
    if (queries == 0)
        return SMELT_OK;
    fill(args, &fields, queries, &params);
    return smelt__call_launch(call, call->op->kernels[0], queries, args->free_multiprocessors,
                              &params);
}

SMELT__OPERATOR(sparse_scores, forward, FORWARD, smelt_operator, NULL,
                .tables = &smelt__sparse_scores_table, .launch = launch)
