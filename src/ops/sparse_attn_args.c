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
        SMELT__TENSOR_BTH(q, args->q),
        .kv = args->kv.data,
        .sink = args->sink.data,
        SMELT__TENSOR_BTH(out, args->out),
        SMELT__TENSOR_BTH(lse, args->lse),
        SMELT__TENSOR_BTH(max_logits, args->max_logits),
        .kv_batch_stride = args->kv.strides[0],
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
