/* See sparse_attn_args.h. */
#include "ops/sparse_attn_args.h"

#include "ops/sparse_attn_partition.h"

size_t smelt__sparse_attn_workspace(int64_t queries, int buckets) {
    return buckets && queries > 0 ? smelt__partition_layout(queries, buckets).bytes : 0;
}

static void fill(const smelt_sparse_attn_args *args, const struct smelt__sparse_attn_call *call,
                 int64_t queries, struct sparse_attn_fwd_params *params) {
    *params = (struct sparse_attn_fwd_params){
        .work = smelt__sparse_attn_work(call, queries),
        .q = args->q.data,
        .kv = args->kv.data,
        .sink = args->sink.data,
        .out = args->out.data,
        .lse = args->lse.data,
        .max_logits = args->max_logits.data,
        .q_batch_stride = args->q.strides[0],
        .q_token_stride = args->q.strides[1],
        .q_head_stride = args->q.strides[2],
        .kv_batch_stride = args->kv.strides[0],
        .out_batch_stride = args->out.strides[0],
        .out_token_stride = args->out.strides[1],
        .out_head_stride = args->out.strides[2],
        .lse_batch_stride = args->lse.strides[0],
        .lse_token_stride = args->lse.strides[1],
        .lse_head_stride = args->lse.strides[2],
        .max_logits_batch_stride = args->max_logits.strides[0],
        .max_logits_token_stride = args->max_logits.strides[1],
        .max_logits_head_stride = args->max_logits.strides[2],
        .kv_row_bytes = args->rows > 1 ? (unsigned)(args->kv.strides[1] * 2) : 0,
        .scale = args->scale,
    };
}

smelt_status smelt__sparse_attn_pack(struct smelt__call *call, int buckets,
                                     struct sparse_attn_fwd_params *params, int64_t *queries) {
    const smelt_sparse_attn_args *args = call->args;
    const struct smelt__sparse_attn_call fields = SMELT__SPARSE_ATTN_CALL(args);
    *queries = 0;
    smelt_status status = smelt__sparse_attn_check_call(&fields);
    const int64_t wanted = smelt__sparse_attn_count_queries(&fields);
    if (status != SMELT_OK || wanted == 0)
        return status; /* of an empty call no tensor is looked at */
    status = smelt__call_check(call, smelt__sparse_attn_workspace(wanted, buckets), NULL, 0);
    if (status != SMELT_OK)
        return status;
    *queries = wanted;
    fill(args, &fields, wanted, params);
    return SMELT_OK;
}
