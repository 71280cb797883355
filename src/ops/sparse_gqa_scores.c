/* The operator sparse_gqa_scores: see smelt/sparse_gqa_scores.h. */
#include "smelt/sparse_gqa_scores.h"

#include "codegen/families/sparse_gqa.h"
#include "ops/sparse_gqa.h"
#include "runtime/log.h"

static struct sparse_gqa_scores_fwd_params pack(const smelt_sparse_gqa_scores_args *args,
                                                const struct smelt__attention_call *fields,
                                                int64_t queries) {
    return (struct sparse_gqa_scores_fwd_params){
        .work = smelt__attention_work(fields, queries),
        .lists = smelt__gqa_lists(fields, &args->limit),
        SMELT__TENSOR_BTH(q, args->q),
        SMELT__TENSOR_BSH(k, args->k),
        SMELT__TENSOR_BTH(lse, args->lse),
        .sink = args->sink.data,
        .target = args->target.data,
        .target_batch_stride = args->target.strides[0],
        .target_token_stride = args->target.strides[1],
        .target_group_stride = args->target.strides[2],
        .scale = args->scale,
    };
}

static smelt_status launch(struct smelt__call *call) {
    const smelt_sparse_gqa_scores_args *args = call->args;
    const struct smelt__attention_call fields = SMELT__ATTENTION_CALL(args);
    int64_t queries;
    SMELT__TRY(smelt__attention_check_forward(call, &fields, &queries));
    if (queries == 0)
        return SMELT_OK;
    const struct sparse_gqa_scores_fwd_params params = pack(args, &fields, queries);
    return smelt__call_launch(call, call->op->kernels[0], queries, args->free_multiprocessors,
                              &params);
}

SMELT__OPERATOR(sparse_gqa_scores, forward, FORWARD, smelt_operator, NULL,
                .tables = &smelt__sparse_gqa_scores_table, .launch = launch)
