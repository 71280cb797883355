/* The block-stationary forward pass of sparse_gqa (variant sm90 of its kernel). */
#pragma once

#include "ops/call.h"
#include "ops/sparse_gqa_call.h"

/* Whether an operator's forward kernel is block-stationary. */
int smelt__sparse_gqa_is_block(const smelt_operator *op);

/* Bytes of workspace of a forward call whose numbers are checked. INVALID_ARGUMENT. */
smelt_status smelt__sparse_gqa_block_workspace(const struct smelt__call *call, size_t *bytes);

/* A forward call with queries, whose arguments are checked. `params`: of variant mma; what it says
 * of tensors serves here. Errors: INVALID_ARGUMENT, DRIVER. */
smelt_status smelt__sparse_gqa_block_forward(const struct smelt__call *call,
                                             const struct sparse_gqa_fwd_params *params);
