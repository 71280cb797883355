/* The backward pass of sparse_attn: what the operator knows of its main kernel, and the chain of
 * launches. Its arguments: sparse_attn_grad_args.h. */
#ifndef SMELT_OPS_SPARSE_ATTN_BACKWARD_H
#define SMELT_OPS_SPARSE_ATTN_BACKWARD_H

#include "codegen/families/sparse_attn.h"
#include "ops/operator.h"
#include "ops/sparse_attn_call.h"

/* Constants of the main kernel's plan (codegen/families/sparse_attn_bwd.h says what they mean), and
 * what else a call must know. */
struct smelt__sparse_attn_backward {
    const struct smelt__operator *kernels;
    struct smelt__sparse_attn_shape shape;
    const int *bounds;                        /* of the buckets */
    const struct smelt__kernel *const *chain; /* the pass's, the partition's first */
    int deterministic;
    int group_queries, query_rows, head_blocks, block_heads, tensor_maps, sums_beside, slice_blocks;
    int sides; /* items of a group that thread blocks take side by side and add up dkv of: 2 of
                  pairs */
    int64_t main_blocks; /* that the device holds of the main kernel at once */
    /* The last call as its kernels had it, which the next one likely is but for its addresses. */
    struct smelt__grad_kept *kept;
};

/* Of an operator that was made for the backward pass, out of its checked spec and its kernels.
 * Errors: OUT_OF_MEMORY. `kernels`, `shape` and `bounds` are the caller's to set. */
smelt_status smelt__sparse_attn_backward_make(const struct smelt__spec *spec,
                                              struct smelt__sparse_attn_backward *backward);
/* A part of that: makes room for a call. OUT_OF_MEMORY. */
smelt_status smelt__sparse_attn_backward_keep(struct smelt__sparse_attn_backward *backward);
/* Also of one that was not made, all zeros. */
void smelt__sparse_attn_backward_free(struct smelt__sparse_attn_backward *backward);

/* smelt_sparse_attn_backward_workspace and smelt_sparse_attn_backward. */
smelt_status smelt__sparse_attn_backward_bytes(const struct smelt__sparse_attn_backward *backward,
                                               const smelt_sparse_attn_grad_args *args,
                                               size_t *bytes);
smelt_status smelt__sparse_attn_backward_launch(const struct smelt__sparse_attn_backward *backward,
                                                const smelt_sparse_attn_grad_args *args,
                                                struct CUstream_st *stream);

#endif
