/* The backward pass of sparse_attn: the checks of its arguments and the chain of its launches. */
#pragma once

#include "ops/sparse_attn_grad_layout.h"

/* Fills in *backward from an operator with a backward pass. `bounds`: of its `buckets` buckets. */
void smelt__sparse_attn_backward_make(const smelt_operator *op, const int *bounds, int buckets,
                                      struct smelt__sparse_attn_backward *backward);

/* The bytes of workspace that a call needs, for which dq's strides alone of the tensors count.
 * INVALID_ARGUMENT. */
smelt_status
smelt__sparse_attn_backward_workspace(const struct smelt__sparse_attn_backward *backward,
                                      const struct smelt__call *given, size_t *bytes);

/* Checks a call and launches its kernels. INVALID_ARGUMENT names the argument, its value and what is
 * legal; DRIVER. */
smelt_status smelt__sparse_attn_backward_launch(const struct smelt__sparse_attn_backward *backward,
                                                struct smelt__call *call);
