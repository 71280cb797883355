/* The backward pass of sparse_attn: the chain of its launches. Its arguments:
 * sparse_attn_grad_args.h. */
#ifndef SMELT_OPS_SPARSE_ATTN_BACKWARD_H
#define SMELT_OPS_SPARSE_ATTN_BACKWARD_H

#include "ops/sparse_attn_grad_layout.h"

/* Derives the remaining fields from the checked spec and the kernels of an operator with a backward
 * pass; the caller has set `kernels`, `shape` and `bounds`. */
void smelt__sparse_attn_backward_make(const struct smelt__spec *spec,
                                      struct smelt__sparse_attn_backward *backward);

/* smelt_sparse_attn_backward. */
smelt_status smelt__sparse_attn_backward_launch(const struct smelt__sparse_attn_backward *backward,
                                                const smelt_sparse_attn_grad_args *args,
                                                struct CUstream_st *stream);

#endif
