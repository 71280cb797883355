/* See sparse_attn_grad_args.h. */
#include "ops/sparse_attn_grad_args.h"

#include <inttypes.h>
#include <stdint.h>

#include "ops/arguments.h"
#include "ops/sparse_attn_partition.h"
#include "runtime/abi.h"
#include "runtime/log.h"

static smelt_status read_args(const smelt_sparse_attn_grad_args *given,
                              smelt_sparse_attn_grad_args *args) {
    smelt_status status =
        smelt__struct_read(SMELT__STRUCT(smelt_sparse_attn_grad_args, "args",
                                         "SMELT_SPARSE_ATTN_GRAD_ARGS_INIT", workspace_limit),
                           given, args);
    if (status == SMELT_OK && args->batches == 0)
        args->batches = 1;
    return status;
}

/* The kernels index the rows of all batches with an int. */
static smelt_status check_rows(const struct smelt__sparse_attn_call *call) {
    smelt_status status = smelt__check_extent("rows", call->rows, 0, INT32_MAX);
    if (status != SMELT_OK || call->batches == 0 || call->rows <= INT32_MAX / call->batches)
        return status;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "batches = %" PRId64 " times rows = %" PRId64
                       " exceeds 2^31 - 1, the most rows of dkv; split the call",
                       call->batches, call->rows);
}

smelt_status smelt__grad_workspace(const struct smelt__sparse_attn_backward *backward,
                                   const smelt_sparse_attn_grad_args *given, size_t *bytes) {
    smelt_sparse_attn_grad_args args;
    *bytes = 0;
    smelt_status status = read_args(given, &args);
    if (status != SMELT_OK)
        return status;
    const struct smelt__sparse_attn_call call = SMELT__SPARSE_ATTN_CALL(&args);
    status = smelt__sparse_attn_check_queries(&call);
    if (status == SMELT_OK)
        status = check_rows(&call);
    if (status == SMELT_OK)
        status = smelt__sparse_attn_check_width(&backward->shape, call.width);
    if (status == SMELT_OK)
        *bytes = smelt__grad_find_layout(backward, &call, &args.dq, args.workspace_limit).bytes;
    return status;
}

/* Exactly one kind of dkv, dsink with a sink alone. */
static smelt_status check_outputs(const struct smelt__sparse_attn_backward *backward,
                                  const smelt_sparse_attn_grad_args *args) {
    const int kinds = !!args->dkv.data + !!args->dkv_fp32.data + !!args->dkv_sum.data;
    if (kinds > 1 || (kinds == 0 && args->rows > 0))
        return smelt__fail(
            SMELT_ERROR_INVALID_ARGUMENT,
            "%s of dkv, dkv_fp32 and dkv_sum %s given; give exactly one: bf16, fp32, "
            "or fp32 to be added to",
            kinds ? "several" : "none", kinds ? "are" : "is");
    if (args->dsink.data && !backward->shape.sink)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "dsink is given but the operator was made with sink=0; make one with "
                           "sink=1, or pass NULL");
    return SMELT_OK;
}

/* The partition that the forward pass left in its workspace. */
static smelt_status check_partition(const struct smelt__sparse_attn_backward *backward,
                                    const smelt_sparse_attn_grad_args *args, int64_t queries) {
    if (!args->partition)
        return SMELT_OK;
    if (!backward->shape.buckets)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "partition is given but the operator has no buckets; pass NULL");
    const size_t needed = smelt__partition_layout(queries, backward->shape.buckets).bytes;
    if ((uintptr_t)args->partition % SMELT__PARTITION_ALIGNMENT)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "partition = %p is not aligned; a forward call's workspace starts at a "
                           "multiple of %d bytes",
                           args->partition, SMELT__PARTITION_ALIGNMENT);
    if (args->partition_bytes < needed)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "partition_bytes = %zu is too small: a forward call with these queries "
                           "leaves %zu in its workspace",
                           args->partition_bytes, needed);
    return SMELT_OK;
}

/* Tensors, partition and workspace. Fills in packed strides. */
static smelt_status check_memory(struct smelt__grad_call *call,
                                 const struct smelt__sparse_attn_call *extents_of) {
    const struct smelt__sparse_attn_backward *backward = call->backward;
    smelt_sparse_attn_grad_args *args = &call->args;
    const struct smelt__memory memory[] = {
        {"workspace", args->workspace, args->workspace_bytes, 1},
        {"partition", args->partition, args->partition ? args->partition_bytes : 0, 0},
    };
    int64_t extents[SMELT__SPARSE_ATTN_SYMBOLS];
    smelt_status status = check_outputs(backward, args);
    if (status == SMELT_OK)
        status = check_partition(backward, args, call->layout.queries);
    smelt__sparse_attn_extents(&backward->shape, extents_of, extents);
    if (status == SMELT_OK)
        status = smelt__check_tensors(&smelt__sparse_attn_grad_tensors, SMELT_PASS_BACKWARD,
                                      extents, args, memory, sizeof memory / sizeof memory[0]);
    return status == SMELT_OK
               ? smelt__check_workspace(args->workspace, args->workspace_bytes, call->layout.bytes,
                                        SMELT__BACKWARD_ALIGNMENT,
                                        "smelt_sparse_attn_backward_workspace")
               : status;
}

smelt_status smelt__grad_check(const struct smelt__sparse_attn_backward *backward,
                               const smelt_sparse_attn_grad_args *given, struct CUstream_st *stream,
                               struct smelt__grad_call *call) {
    smelt_sparse_attn_grad_args *args = &call->args;
    smelt_status status = read_args(given, args);
    if (status != SMELT_OK)
        return status;
    const struct smelt__sparse_attn_call fields = SMELT__SPARSE_ATTN_CALL(args);
    call->backward = backward;
    call->stream = stream;
    status = smelt__sparse_attn_check_call(&backward->shape, &fields);
    if (status == SMELT_OK)
        status = check_rows(&fields);
    if (status != SMELT_OK)
        return status;
    call->layout = smelt__grad_find_layout(backward, &fields, &args->dq, args->workspace_limit);
    status = check_memory(call, &fields);
    return status == SMELT_OK ? smelt__operator_check_grid(backward->kernels, SMELT_PASS_BACKWARD,
                                                           call->layout.dkv.groups)
                              : status;
}
