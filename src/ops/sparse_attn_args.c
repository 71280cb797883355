/* See sparse_attn_args.h. */
#include "ops/sparse_attn_args.h"

#include "ops/arguments.h"
#include "ops/sparse_attn_partition.h"
#include "ops/sparse_attn_tensors.h"
#include "runtime/abi.h"

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

static size_t workspace_bytes(const struct smelt__sparse_attn_shape *shape, int64_t queries) {
    return shape->buckets && queries > 0 ? smelt__partition_layout(queries, shape->buckets).bytes
                                         : 0;
}

/* All tensors, and the workspace that `queries` need. */
static smelt_status check_memory(const struct smelt__sparse_attn_shape *shape,
                                 const struct smelt__sparse_attn_call *call,
                                 smelt_sparse_attn_args *args, int64_t queries) {
    int64_t extents[SMELT__SPARSE_ATTN_SYMBOLS];
    const size_t needed = workspace_bytes(shape, queries);
    const struct smelt__memory workspace = {"workspace", args->workspace,
                                            needed ? args->workspace_bytes : 0, 1};
    smelt__sparse_attn_extents(shape, call, extents);
    smelt_status status = smelt__check_tensors(&smelt__sparse_attn_tensors, SMELT_PASS_FORWARD,
                                               extents, args, &workspace, 1);
    return status == SMELT_OK ? smelt__check_workspace(args->workspace, args->workspace_bytes,
                                                       needed, SMELT__PARTITION_ALIGNMENT,
                                                       "smelt_sparse_attn_forward_workspace")
                              : status;
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

smelt_status smelt__sparse_attn_workspace(const struct smelt__sparse_attn_shape *shape,
                                          const smelt_sparse_attn_args *given, size_t *bytes) {
    smelt_sparse_attn_args args;
    *bytes = 0;
    smelt_status status = read_args(given, &args);
    if (status != SMELT_OK)
        return status;
    const struct smelt__sparse_attn_call call = SMELT__SPARSE_ATTN_CALL(&args);
    status = smelt__sparse_attn_check_queries(&call);
    if (status == SMELT_OK)
        *bytes = workspace_bytes(shape, smelt__sparse_attn_count_queries(&call));
    return status;
}

smelt_status smelt__sparse_attn_pack(const struct smelt__sparse_attn_shape *shape,
                                     const smelt_sparse_attn_args *given,
                                     struct smelt__sparse_attn_packed *packed) {
    smelt_sparse_attn_args args;
    packed->queries = 0;
    smelt_status status = read_args(given, &args);
    if (status != SMELT_OK)
        return status;
    const struct smelt__sparse_attn_call call = SMELT__SPARSE_ATTN_CALL(&args);
    status = smelt__sparse_attn_check_call(shape, &call);
    const int64_t wanted = status == SMELT_OK ? smelt__sparse_attn_count_queries(&call) : 0;
    if (wanted == 0)
        return status;
    status = check_memory(shape, &call, &args, wanted);
    if (status != SMELT_OK)
        return status;
    packed->queries = wanted;
    packed->workspace = args.workspace;
    packed->free_multiprocessors = args.free_multiprocessors;
    fill(&args, &call, wanted, &packed->params);
    return SMELT_OK;
}
