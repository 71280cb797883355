/* Common to the files of sparse_attn's passes. */
#pragma once

#include "ops/sparse_attn_grad_layout.h"

/* Checks a forward call, and fills *params. *queries: how many the grid must cover; if 0, there is nothing to
 * launch, no tensor was checked, and *params is not set. `buckets`: their number; 0: none. Errors:
 * INVALID_ARGUMENT. */
smelt_status smelt__sparse_attn_pack(struct smelt__call *call, int buckets,
                                     struct sparse_attn_fwd_params *params, int64_t *queries);

/* ---- the backward pass (sparse_attn_backward.c) ------------------------------------------------ */

/* Fills in *backward from an operator with a backward pass. `bounds`: of its `buckets` buckets. */
void smelt__sparse_attn_backward_make(const smelt_operator *op, const int *bounds, int buckets,
                                      struct smelt__sparse_attn_backward *backward);

/* The bytes of workspace that a call needs. Of the tensors it reads dq's strides only. Errors:
 * INVALID_ARGUMENT. */
smelt_status
smelt__sparse_attn_backward_workspace(const struct smelt__sparse_attn_backward *backward,
                                      const struct smelt__call *given, size_t *bytes);

/* Checks a call and launches its kernels. Errors: INVALID_ARGUMENT, whose message names the argument, its
 * value and the legal values; DRIVER. */
smelt_status smelt__sparse_attn_backward_launch(const struct smelt__sparse_attn_backward *backward,
                                                struct smelt__call *call);
