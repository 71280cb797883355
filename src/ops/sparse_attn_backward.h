/* The backward pass of sparse_attn: the checks of its arguments and its launches. */
#pragma once

#include "ops/sparse_attn_grad_layout.h"

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
