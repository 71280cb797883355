/* See sparse_attn_grad_args.h. */
#include "ops/sparse_attn_grad_args.h"

#include <inttypes.h>
#include <stdint.h>

#include "ops/sparse_attn_partition.h"
#include "runtime/log.h"

/* The kernels index the rows of all batches with an int. */
static smelt_status check_rows(const struct smelt__sparse_attn_call *call) {
    if (call->batches == 0 || call->rows <= INT32_MAX / call->batches)
        return SMELT_OK;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "batches = %" PRId64 " times rows = %" PRId64
                       " exceeds 2^31 - 1, the most rows of dkv; split the call",
                       call->batches, call->rows);
}

smelt_status smelt__grad_workspace(const struct smelt__sparse_attn_backward *backward,
                                   const struct smelt__call *given, size_t *bytes) {
    const smelt_sparse_attn_grad_args *args = given->args;
    const struct smelt__sparse_attn_call call = SMELT__SPARSE_ATTN_CALL(args);
    smelt_status status = smelt__sparse_attn_check_queries(&call);
    if (status == SMELT_OK)
        status = check_rows(&call);
    if (status == SMELT_OK)
        *bytes = smelt__grad_find_layout(backward, &call, &args->dq, args->workspace_limit).bytes;
    return status;
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

smelt_status smelt__grad_check(const struct smelt__sparse_attn_backward *backward,
                               struct smelt__call *given, struct smelt__grad_call *call) {
    const smelt_sparse_attn_grad_args *args = given->args;
    const struct smelt__sparse_attn_call fields = SMELT__SPARSE_ATTN_CALL(args);
    const struct smelt__memory partition = {"partition", args->partition,
                                            args->partition ? args->partition_bytes : 0, 0};
    smelt_status status = smelt__sparse_attn_check_call(&fields);
    if (status == SMELT_OK)
        status = check_rows(&fields);
    if (status != SMELT_OK)
        return status;
    *call = (struct smelt__grad_call){
        .backward = backward,
        .args = args,
        .layout = smelt__grad_find_layout(backward, &fields, &args->dq, args->workspace_limit),
        .stream = given->stream};
    status = check_partition(backward, args, call->layout.queries);
    if (status == SMELT_OK)
        status = smelt__call_check(given, call->layout.bytes, &partition, 1);
    return status == SMELT_OK ? smelt__operator_check_grid(backward->op, SMELT_PASS_BACKWARD,
                                                           call->layout.dkv.groups)
                              : status;
}
