/* See sparse_attn_call.h. */
#include "ops/sparse_attn_call.h"

#include <inttypes.h>
#include <stdint.h>

#include "ops/arguments.h"
#include "ops/sparse_attn_partition.h"
#include "runtime/log.h"

static smelt_status check_query_list(const struct smelt__sparse_attn_call *call) {
    if (!call->queries->data && (call->query_count->data || call->query_capacity))
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "queries is NULL but %s is given; a query list needs its entries",
                           call->query_count->data ? "query_count" : "query_capacity");
    return SMELT_OK;
}

smelt_status smelt__sparse_attn_check_queries(const struct smelt__sparse_attn_call *call) {
    SMELT__TRY(smelt__check_queries(call->batches, call->tokens));
    return check_query_list(call);
}

smelt_status smelt__sparse_attn_check_call(const struct smelt__sparse_attn_call *call) {
    SMELT__TRY(smelt__check_scale(call->scale));
    return smelt__sparse_attn_check_queries(call);
}

int64_t smelt__sparse_attn_count_queries(const struct smelt__sparse_attn_call *call) {
    const int64_t all = call->batches * call->tokens;
    return all == 0 || !call->queries->data ? all : call->query_capacity;
}

struct work_params smelt__sparse_attn_work(const struct smelt__sparse_attn_call *call,
                                           int64_t queries) {
    return (struct work_params){
        .indices = call->indices->data,
        .topk_length = call->topk_length->data,
        .queries = call->queries->data,
        .query_count = call->query_count->data,
        .indices_batch_stride = call->indices->strides[0],
        .indices_token_stride = call->indices->strides[1],
        .topk_length_batch_stride = call->topk_length->strides[0],
        .topk_length_token_stride = call->topk_length->strides[1],
        .batches = (int)call->batches,
        .tokens = (int)call->tokens,
        .rows = (int)call->rows,
        .width = (int)call->width,
        .query_capacity = (int)queries,
    };
}

/* ---- the forward pass ------------------------------------------------------------------------ */

size_t smelt__sparse_attn_workspace(int64_t queries, int buckets) {
    return buckets && queries > 0 ? smelt__partition_layout(queries, buckets).bytes : 0;
}

smelt_status smelt__sparse_attn_check_forward(struct smelt__call *call,
                                              const struct smelt__sparse_attn_call *fields,
                                              int buckets, int64_t *queries) {
    *queries = 0;
    SMELT__TRY(smelt__sparse_attn_check_call(fields));
    const int64_t wanted = smelt__sparse_attn_count_queries(fields);
    if (wanted == 0)
        return SMELT_OK; /* an empty call's tensors are not checked */
    SMELT__TRY(smelt__call_check(call, smelt__sparse_attn_workspace(wanted, buckets), NULL, 0));
    SMELT__TRY(smelt__operator_check_grid(call->op, SMELT_PASS_FORWARD, wanted));
    *queries = wanted;
    return SMELT_OK;
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
    SMELT__TRY(smelt__sparse_attn_check_forward(call, &fields, buckets, queries));
    if (*queries > 0)
        fill(args, &fields, *queries, params);
    return SMELT_OK;
}
