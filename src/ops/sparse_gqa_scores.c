/* The operator sparse_gqa_scores: see smelt/sparse_gqa_scores.h. */
#include "smelt/sparse_gqa_scores.h"

#include "codegen/families/sparse_gqa.h"
#include "ops/sparse_gqa_call.h"

static struct sparse_gqa_scores_fwd_params pack(const smelt_sparse_gqa_scores_args *args,
                                                const struct smelt__sparse_attn_call *fields,
                                                int64_t queries) {
    return (struct sparse_gqa_scores_fwd_params){
        .work = smelt__sparse_attn_work(fields, queries),
        .lists = SMELT__SPARSE_GQA_LISTS_PARAMS(args),
        .q = args->q.data,
        .k = args->k.data,
        .lse = args->lse.data,
        .sink = args->sink.data,
        .target = args->target.data,
        .q_batch_stride = args->q.strides[0],
        .q_token_stride = args->q.strides[1],
        .q_head_stride = args->q.strides[2],
        .k_batch_stride = args->k.strides[0],
        .k_row_stride = args->k.strides[1],
        .k_head_stride = args->k.strides[2],
        .lse_batch_stride = args->lse.strides[0],
        .lse_token_stride = args->lse.strides[1],
        .lse_head_stride = args->lse.strides[2],
        .target_batch_stride = args->target.strides[0],
        .target_token_stride = args->target.strides[1],
        .target_group_stride = args->target.strides[2],
        .scale = args->scale,
    };
}

static smelt_status launch(struct smelt__call *call) {
    const smelt_sparse_gqa_scores_args *args = call->args;
    const struct smelt__sparse_attn_call fields = SMELT__SPARSE_ATTN_CALL(args);
    smelt_status status = smelt__sparse_attn_check_call(&fields);
    const int64_t queries = smelt__sparse_attn_count_queries(&fields);
    if (status != SMELT_OK || queries == 0)
        return status; /* of an empty call no tensor is looked at */
    status = smelt__call_check(call, 0, NULL, 0);
    if (status == SMELT_OK)
        status = smelt__operator_check_grid(call->op, SMELT_PASS_FORWARD, queries);
    if (status != SMELT_OK)
        return status;
    const struct sparse_gqa_scores_fwd_params params = pack(args, &fields, queries);
    return smelt__call_launch(call, call->op->kernels[0], queries, args->free_multiprocessors,
                              &params);
}

SMELT__OPERATOR(sparse_gqa_scores, forward, FORWARD, smelt_operator, NULL,
                .tables = smelt__sparse_gqa_scores_table, .table_key = "lists", .launch = launch)
