/* See sparse_attn_args.h. */
#include "ops/sparse_attn_args.h"

#include <inttypes.h>
#include <stdint.h>

#include "ops/arguments.h"
#include "ops/sparse_attn_partition.h"
#include "ops/sparse_attn_tensors.h"
#include "runtime/abi.h"
#include "runtime/log.h"

/* Times log2(e) this still is finite in fp32, in which the kernel multiplies them. */
static const float MAX_SCALE = 2e38F;

/* This library's copy of a caller's struct, whatever version that was built against. */
static smelt_status read_args(const smelt_sparse_attn_args *given, smelt_sparse_attn_args *args) {
    smelt_status status =
        smelt__struct_read(SMELT__STRUCT(smelt_sparse_attn_args, "args",
                                         "SMELT_SPARSE_ATTN_ARGS_INIT", workspace_bytes),
                           given, args);
    if (status == SMELT_OK && args->batches == 0)
        args->batches = 1;
    return status;
}

static smelt_status check_width(const struct smelt__sparse_attn_shape *shape, int64_t width) {
    if (shape->buckets)
        return smelt__check_extent("width", width, 1, SMELT__PARTITION_MOST_SLOTS);
    if (width >= 1 && width <= shape->topk)
        return SMELT_OK;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "width = %" PRId64 " is out of range; this operator was made for topk=%d: "
                       "legal are 1..%d, or make one with a larger topk or with buckets",
                       width, shape->topk, shape->topk);
}

static smelt_status check_extents(const struct smelt__sparse_attn_shape *shape,
                                  const smelt_sparse_attn_args *args) {
    smelt_status status = smelt__check_queries(args->batches, args->tokens);
    if (status == SMELT_OK)
        status = smelt__check_extent("rows", args->rows, 0, INT32_MAX);
    if (status == SMELT_OK)
        status = check_width(shape, args->width);
    if (status != SMELT_OK)
        return status;
    if (!(args->scale > 0.0F) || args->scale > MAX_SCALE)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "scale = %g is not legal; it must be positive and at most %g",
                           (double)args->scale, (double)MAX_SCALE);
    return SMELT_OK;
}

static smelt_status check_query_list(const smelt_sparse_attn_args *args) {
    if (args->queries.data)
        return smelt__check_extent("query_capacity", args->query_capacity, 0, INT32_MAX);
    if (args->query_count.data || args->query_capacity)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "queries is NULL but %s is given; a query list needs its entries",
                           args->query_count.data ? "query_count" : "query_capacity");
    return SMELT_OK;
}

/* Queries to compute at most, of checked arguments. */
static int64_t count_queries(const smelt_sparse_attn_args *args) {
    const int64_t all = args->batches * args->tokens;
    return all == 0 || !args->queries.data ? all : args->query_capacity;
}

static size_t workspace_bytes(const struct smelt__sparse_attn_shape *shape, int64_t queries) {
    return shape->buckets && queries > 0 ? smelt__partition_layout(queries, shape->buckets).bytes
                                         : 0;
}

static smelt_status check_sink(const struct smelt__sparse_attn_shape *shape,
                               const smelt_sparse_attn_args *args) {
    if (!args->sink.data == !shape->sink)
        return SMELT_OK;
    if (shape->sink)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "sink is NULL; it must point to device memory, since the operator was "
                           "made with sink=1");
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "sink is given but the operator was made with sink=0; make one with sink=1, "
                       "or pass NULL");
}

/* All tensors, and the workspace that `queries` need. */
static smelt_status check_memory(const struct smelt__sparse_attn_shape *shape,
                                 smelt_sparse_attn_args *args, int64_t queries) {
    const int64_t extents[SMELT__SPARSE_ATTN_SYMBOLS] = {
        [SMELT__SPARSE_ATTN_B] = args->batches,
        [SMELT__SPARSE_ATTN_T] = args->tokens,
        [SMELT__SPARSE_ATTN_S] = args->rows,
        [SMELT__SPARSE_ATTN_H] = shape->heads,
        [SMELT__SPARSE_ATTN_DQK] = shape->dqk,
        [SMELT__SPARSE_ATTN_DV] = shape->dv,
        [SMELT__SPARSE_ATTN_WIDTH] = args->width,
        [SMELT__SPARSE_ATTN_LISTED] = args->query_capacity,
        [SMELT__SPARSE_ATTN_ONE] = 1,
    };
    const size_t needed = workspace_bytes(shape, queries);
    smelt_status status = check_sink(shape, args);
    if (status == SMELT_OK)
        status = smelt__check_tensors(&smelt__sparse_attn_tensors, SMELT_PASS_FORWARD, extents,
                                      args, args->workspace, needed ? args->workspace_bytes : 0);
    return status == SMELT_OK ? smelt__check_workspace(args->workspace, args->workspace_bytes,
                                                       needed, SMELT__PARTITION_ALIGNMENT,
                                                       "smelt_sparse_attn_forward_workspace")
                              : status;
}

static void fill(const smelt_sparse_attn_args *args, int64_t queries,
                 struct sparse_attn_fwd_params *params) {
    *params = (struct sparse_attn_fwd_params){
        .work =
            {
                .indices = args->indices.data,
                .topk_length = args->topk_length.data,
                .queries = args->queries.data,
                .query_count = args->query_count.data,
                .indices_batch_stride = args->indices.strides[0],
                .indices_token_stride = args->indices.strides[1],
                .topk_length_batch_stride = args->topk_length.strides[0],
                .topk_length_token_stride = args->topk_length.strides[1],
                .batches = (int)args->batches,
                .tokens = (int)args->tokens,
                .rows = (int)args->rows,
                .width = (int)args->width,
                .query_capacity = (int)queries,
            },
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

smelt_status smelt__sparse_attn_workspace(const struct smelt__sparse_attn_shape *shape,
                                          const smelt_sparse_attn_args *given, size_t *bytes) {
    smelt_sparse_attn_args args;
    *bytes = 0;
    smelt_status status = read_args(given, &args);
    if (status == SMELT_OK)
        status = smelt__check_queries(args.batches, args.tokens);
    if (status == SMELT_OK)
        status = check_query_list(&args);
    if (status == SMELT_OK)
        *bytes = workspace_bytes(shape, count_queries(&args));
    return status;
}

smelt_status smelt__sparse_attn_pack(const struct smelt__sparse_attn_shape *shape,
                                     const smelt_sparse_attn_args *given,
                                     struct sparse_attn_fwd_params *params, void **workspace,
                                     int64_t *queries) {
    smelt_sparse_attn_args args;
    *queries = 0;
    smelt_status status = read_args(given, &args);
    if (status == SMELT_OK)
        status = check_extents(shape, &args);
    if (status == SMELT_OK)
        status = check_query_list(&args);
    const int64_t wanted = status == SMELT_OK ? count_queries(&args) : 0;
    if (wanted == 0)
        return status;
    status = check_memory(shape, &args, wanted);
    if (status != SMELT_OK)
        return status;
    *queries = wanted;
    *workspace = args.workspace;
    fill(&args, wanted, params);
    return SMELT_OK;
}
