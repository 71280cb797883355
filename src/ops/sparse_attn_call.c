/* See sparse_attn_call.h. */
#include "ops/sparse_attn_call.h"

#include <inttypes.h>
#include <stdint.h>

#include "ops/arguments.h"
#include "ops/sparse_attn_partition.h"
#include "runtime/log.h"

/* Times log2(e) this still is finite in fp32, in which the kernel multiplies them. */
static const float MAX_SCALE = 2e38F;

smelt_status smelt__sparse_attn_check_width(const struct smelt__sparse_attn_shape *shape,
                                            int64_t width) {
    if (shape->buckets)
        return smelt__check_extent("width", width, 1, SMELT__PARTITION_MOST_SLOTS);
    if (width >= 1 && width <= shape->topk)
        return SMELT_OK;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "width = %" PRId64 " is out of range; this operator was made for topk=%d: "
                       "legal are 1..%d; make one with a larger topk (sparse_attn with buckets "
                       "takes wider rows, too)",
                       width, shape->topk, shape->topk);
}

static smelt_status check_query_list(const struct smelt__sparse_attn_call *call) {
    if (call->queries->data)
        return smelt__check_extent("query_capacity", call->query_capacity, 0, INT32_MAX);
    if (call->query_count->data || call->query_capacity)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "queries is NULL but %s is given; a query list needs its entries",
                           call->query_count->data ? "query_count" : "query_capacity");
    return SMELT_OK;
}

smelt_status smelt__sparse_attn_check_queries(const struct smelt__sparse_attn_call *call) {
    smelt_status status = smelt__check_queries(call->batches, call->tokens);
    return status == SMELT_OK ? check_query_list(call) : status;
}

static smelt_status check_sink(const struct smelt__sparse_attn_shape *shape,
                               const struct smelt__sparse_attn_call *call) {
    if (!call->sink->data == !shape->sink)
        return SMELT_OK;
    if (shape->sink)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "sink is NULL; it must point to device memory, since the operator was "
                           "made with sink=1");
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "sink is given but the operator was made with sink=0; make one with sink=1, "
                       "or pass NULL");
}

smelt_status smelt__sparse_attn_check_call(const struct smelt__sparse_attn_shape *shape,
                                           const struct smelt__sparse_attn_call *call) {
    smelt_status status = smelt__check_queries(call->batches, call->tokens);
    if (status == SMELT_OK)
        status = smelt__check_extent("rows", call->rows, 0, INT32_MAX);
    if (status == SMELT_OK)
        status = smelt__sparse_attn_check_width(shape, call->width);
    if (status == SMELT_OK)
        status =
            smelt__check_extent("free_multiprocessors", call->free_multiprocessors, 0, INT32_MAX);
    if (status != SMELT_OK)
        return status;
    if (!(call->scale > 0.0F) || call->scale > MAX_SCALE)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "scale = %g is not legal; it must be positive and at most %g",
                           (double)call->scale, (double)MAX_SCALE);
    status = check_query_list(call);
    if (status != SMELT_OK || smelt__sparse_attn_count_queries(call) == 0)
        return status; /* of an empty call no tensor is looked at */
    return check_sink(shape, call);
}

int64_t smelt__sparse_attn_count_queries(const struct smelt__sparse_attn_call *call) {
    const int64_t all = call->batches * call->tokens;
    return all == 0 || !call->queries->data ? all : call->query_capacity;
}

void smelt__sparse_attn_extents(const struct smelt__sparse_attn_shape *shape,
                                const struct smelt__sparse_attn_call *call,
                                int64_t extents[SMELT__SPARSE_ATTN_SYMBOLS]) {
    extents[SMELT__SPARSE_ATTN_B] = call->batches;
    extents[SMELT__SPARSE_ATTN_T] = call->tokens;
    extents[SMELT__SPARSE_ATTN_S] = call->rows;
    extents[SMELT__SPARSE_ATTN_H] = shape->heads;
    extents[SMELT__SPARSE_ATTN_DQK] = shape->dqk;
    extents[SMELT__SPARSE_ATTN_DV] = shape->dv;
    extents[SMELT__SPARSE_ATTN_WIDTH] = call->width;
    extents[SMELT__SPARSE_ATTN_LISTED] = call->query_capacity;
    extents[SMELT__SPARSE_ATTN_ONE] = 1;
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
