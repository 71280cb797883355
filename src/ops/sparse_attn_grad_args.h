/* The arguments of sparse_attn's backward pass: their checks, and the workspace they need. */
#ifndef SMELT_OPS_SPARSE_ATTN_GRAD_ARGS_H
#define SMELT_OPS_SPARSE_ATTN_GRAD_ARGS_H

#include "ops/arguments.h"
#include "ops/key_grads.h"
#include "ops/sparse_attn_backward.h"

/* Where each array lies in the workspace, bytes from its start, and what follows from the call. */
struct smelt__grad_layout {
    size_t partition, members, masks, statistics, dsink_parts;
    /* 0: lists of keys lie in the workspace, dkv.key_stride apart. Else query q's lies in dq, at
     * the beginning of its rows, so many keys apart: nobody reads it when these are written. */
    int64_t dq_list_stride;
    int64_t dq_side_stride; /* of several items of a query each has the list in its own rows */
    size_t slices;          /* of dq, of items that several thread blocks take */
    size_t progress;        /* ahead of the sums: zeroed together */
    struct smelt__key_grads_layout dkv;
    size_t bytes; /* of all */
    int64_t queries, entries, parts;
};

/* What the layout of dkv's sums follows from. */
struct smelt__key_grads_shape smelt__grad_shape(const struct smelt__sparse_attn_backward *backward);

/* Of checked extents. `dq` as the caller has it, unchecked; data NULL: not known. `limit`: of
 * partial rows, in bytes; 0: by rule. */
struct smelt__grad_layout
smelt__grad_find_layout(const struct smelt__sparse_attn_backward *backward,
                        const struct smelt__sparse_attn_call *call, const smelt_tensor *dq,
                        size_t limit);

/* How the main kernel's items are shared between its thread blocks. */
struct smelt__grad_grid {
    int64_t blocks;
    int64_t sliced, takers; /* as sparse_attn_bwd_params has them */
};

/* Of a call with this layout, `most` thread blocks at most. */
struct smelt__grad_grid smelt__grad_find_grid(const struct smelt__sparse_attn_backward *backward,
                                              const struct smelt__grad_layout *layout,
                                              int64_t most);

/* This library's copy of a caller's struct, whatever version that was built against. */
smelt_status smelt__grad_read_args(const smelt_sparse_attn_grad_args *given,
                                   smelt_sparse_attn_grad_args *args);

/* Each INVALID_ARGUMENT by name: that the rows of all batches are numbered by an int; tensors,
 * partition and workspace, *args being the library's own copy, whose strides are packed. */
smelt_status smelt__grad_check_rows(const struct smelt__sparse_attn_call *call);
smelt_status smelt__grad_check_memory(const struct smelt__sparse_attn_backward *backward,
                                      const struct smelt__sparse_attn_call *call,
                                      const struct smelt__grad_layout *layout,
                                      smelt_sparse_attn_grad_args *args,
                                      struct smelt__checked *checked);

/* Whether a call is legal because `was`, of which `checked` is, was legal and it is the same but
 * for its addresses. Both structs are of this library's version. */
int smelt__grad_check_again(const smelt_sparse_attn_grad_args *was,
                            const struct smelt__checked *checked,
                            const smelt_sparse_attn_grad_args *given);

#endif
