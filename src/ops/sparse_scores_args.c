/* See sparse_scores_args.h. */
#include "ops/sparse_scores_args.h"

#include "ops/arguments.h"
#include "ops/sparse_scores_tensors.h"
#include "runtime/abi.h"

/* This library's copy of a caller's struct, whatever version that was built against. */
static smelt_status read_args(const smelt_sparse_scores_args *given,
                              smelt_sparse_scores_args *args) {
    smelt_status status =
        smelt__struct_read(SMELT__STRUCT(smelt_sparse_scores_args, "args",
                                         "SMELT_SPARSE_SCORES_ARGS_INIT", query_capacity),
                           given, args);
    if (status == SMELT_OK && args->batches == 0)
        args->batches = 1;
    return status;
}

static void fill(const smelt_sparse_scores_args *args, const struct smelt__sparse_attn_call *call,
                 int64_t queries, struct sparse_scores_fwd_params *params) {
    *params = (struct sparse_scores_fwd_params){
        .work = smelt__sparse_attn_work(call, queries),
        .q = args->q.data,
        .kv = args->kv.data,
        .lse = args->lse.data,
        .sink = args->sink.data,
        .target = args->target.data,
        .q_batch_stride = args->q.strides[0],
        .q_token_stride = args->q.strides[1],
        .q_head_stride = args->q.strides[2],
        .kv_batch_stride = args->kv.strides[0],
        .lse_batch_stride = args->lse.strides[0],
        .lse_token_stride = args->lse.strides[1],
        .lse_head_stride = args->lse.strides[2],
        .target_batch_stride = args->target.strides[0],
        .target_token_stride = args->target.strides[1],
        .kv_row_bytes = args->rows > 1 ? (unsigned)(args->kv.strides[1] * 2) : 0,
        .scale = args->scale,
    };
}

smelt_status smelt__sparse_scores_pack(const struct smelt__sparse_attn_shape *shape,
                                       const smelt_sparse_scores_args *given,
                                       struct smelt__sparse_scores_packed *packed) {
    smelt_sparse_scores_args args;
    int64_t extents[SMELT__SPARSE_ATTN_SYMBOLS];
    packed->queries = 0;
    smelt_status status = read_args(given, &args);
    if (status != SMELT_OK)
        return status;
    const struct smelt__sparse_attn_call call = SMELT__SPARSE_ATTN_CALL(&args);
    status = smelt__sparse_attn_check_call(shape, &call);
    const int64_t wanted = status == SMELT_OK ? smelt__sparse_attn_count_queries(&call) : 0;
    if (wanted == 0)
        return status;
    smelt__sparse_attn_extents(shape, &call, extents);
    status = smelt__check_tensors(&smelt__sparse_scores_tensors, SMELT_PASS_FORWARD, extents, &args,
                                  NULL, 0);
    if (status != SMELT_OK)
        return status;
    packed->queries = wanted;
    packed->free_multiprocessors = args.free_multiprocessors;
    fill(&args, &call, wanted, &packed->params);
    return SMELT_OK;
}
