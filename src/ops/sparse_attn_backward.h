/* The backward pass of sparse_attn: the chain of its launches. Its arguments:
 * sparse_attn_grad_args.h. */
#pragma once

#include "ops/sparse_attn_grad_layout.h"

/* Fills in *backward from an operator with a backward pass. `bounds`: of its `buckets` buckets. */
void smelt__sparse_attn_backward_make(const smelt_operator *op, const int *bounds, int buckets,
                                      struct smelt__sparse_attn_backward *backward);

/* Checks a call and launches its kernels. */
smelt_status smelt__sparse_attn_backward_launch(const struct smelt__sparse_attn_backward *backward,
                                                struct smelt__call *call);
