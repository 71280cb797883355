/*
 * What the kernels of a backward call of sparse_attn get. Nearly all of it follows from the call's
 * extents, strides and numbers, and is prepared once for all calls that have the same; then a call
 * only has its addresses checked and put in.
 */
#ifndef SMELT_OPS_SPARSE_ATTN_GRAD_PARAMS_H
#define SMELT_OPS_SPARSE_ATTN_GRAD_PARAMS_H

#include "ops/arguments.h"
#include "ops/sparse_attn_grad_args.h"
#include "runtime/tensor_map.h"

struct smelt__grad_prepared {
    smelt_sparse_attn_grad_args args; /* as the call gave them; size 0: no call's */
    struct smelt__checked checked;
    struct smelt__grad_layout layout;
    struct smelt__grad_grid grid; /* of the main kernel, of a launch that takes all groups */
    int64_t zeros; /* floats from `progress` on that begin as zeros: progress, and dkv's sums */
    /* Without queries the first four have no meaning. */
    struct sparse_attn_partition_params partition; /* with buckets */
    struct sparse_attn_bwd_lists_params lists;
    struct sparse_attn_bwd_rows_params rows;
    struct sparse_attn_bwd_params main; /* all but what is a chunk's */
    struct sparse_attn_bwd_finish_params finish;
    struct smelt__tensor_box q_box, grad_out_box; /* where the main kernel has maps */
    struct smelt__key_grads_call dkv; /* `user`, `launch_groups` and `stream` are the caller's */
};

/* The kernel of a number. */
const struct smelt__kernel *smelt__grad_kernel(const struct smelt__sparse_attn_backward *backward,
                                               enum smelt__sparse_attn_backward_kernel kernel);

/* Checks a call and prepares it, all but its addresses. INVALID_ARGUMENT by name; *prepared is then
 * no call's. */
smelt_status smelt__grad_prepare(const struct smelt__sparse_attn_backward *backward,
                                 const smelt_sparse_attn_grad_args *given,
                                 struct smelt__grad_prepared *prepared);

/* Whether a call is as the prepared one but for its addresses, and these are legal. */
int smelt__grad_is_prepared(const struct smelt__grad_prepared *prepared,
                            const smelt_sparse_attn_grad_args *given);

/* Puts in the addresses of such a call, or of prepared->args. The context is entered
 * (runtime/context.h). Errors: DRIVER. */
smelt_status smelt__grad_point(const struct smelt__sparse_attn_backward *backward,
                               const smelt_sparse_attn_grad_args *args,
                               struct smelt__grad_prepared *prepared);

#endif
