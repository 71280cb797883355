/* See sparse_attn_call.h. */
#include "ops/sparse_attn_call.h"

#include <inttypes.h>
#include <stdint.h>

#include "ops/arguments.h"
#include "runtime/log.h"

static smelt_status check_query_list(const struct smelt__sparse_attn_call *call) {
    if (!call->queries->data && (call->query_count->data || call->query_capacity))
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "queries is NULL but %s is given; a query list needs its entries",
                           call->query_count->data ? "query_count" : "query_capacity");
    return SMELT_OK;
}

smelt_status smelt__sparse_attn_check_queries(const struct smelt__sparse_attn_call *call) {
    smelt_status status = smelt__check_queries(call->batches, call->tokens);
    return status == SMELT_OK ? check_query_list(call) : status;
}

smelt_status smelt__sparse_attn_check_call(const struct smelt__sparse_attn_call *call) {
    const smelt_status status = smelt__check_scale(call->scale);
    return status == SMELT_OK ? smelt__sparse_attn_check_queries(call) : status;
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
