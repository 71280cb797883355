/* What the backward pass of sparse_attn knows of its kernels, and what follows from that and a
 * call's extents: the workspace, and how the main kernel's work is shared between its blocks. */
#ifndef SMELT_OPS_SPARSE_ATTN_GRAD_LAYOUT_H
#define SMELT_OPS_SPARSE_ATTN_GRAD_LAYOUT_H

#include "codegen/families/sparse_attn.h"
#include "codegen/families/sparse_attn_bwd.h"
#include "ops/key_grads.h"
#include "ops/operator.h"
#include "ops/sparse_attn_call.h"

/* The operator's half. Immutable once made. */
struct smelt__sparse_attn_backward {
    const struct smelt__operator *kernels;
    struct smelt__sparse_attn_shape shape;
    const int *bounds;                        /* of the buckets */
    const struct smelt__kernel *const *chain; /* the pass's kernels, the partition's first */
    int deterministic;
    struct smelt__sparse_attn_bwd_launch main; /* of the main kernel's plan */
    int sides;           /* items of a group whose dkv a cluster sums before it is written: 2 with
                            pairs, else 1 */
    int64_t main_blocks; /* of the main kernel that are resident on the device at once */
};

const struct smelt__kernel *smelt__grad_kernel(const struct smelt__sparse_attn_backward *backward,
                                               enum smelt__sparse_attn_backward_kernel kernel);

/* Where each array lies in the workspace, in bytes from its start, and counts that follow from the
 * call. */
struct smelt__grad_layout {
    size_t partition, members, masks, statistics, dsink_parts;
    /* 0: the key lists lie in the workspace, dkv.key_stride apart. Else query q's list lies in dq,
     * at the start of its rows, this many keys from the one before; dq's rows are written only
     * after their own list was read. */
    int64_t dq_list_stride;
    int64_t dq_side_stride; /* from the list of a query's item to its next item's copy; 0: shared */
    size_t slices;          /* partial dq of items that several thread blocks share */
    size_t progress;        /* right before the sums: zeroed together with them */
    struct smelt__key_grads_layout dkv;
    size_t bytes; /* of the whole workspace */
    int64_t queries, entries, parts;
};

/* What the layout of dkv's sums follows from. */
struct smelt__key_grads_shape smelt__grad_shape(const struct smelt__sparse_attn_backward *backward);

/* Of checked extents. `dq`: as the caller gave it, unchecked; data NULL: not known. `limit`: of
 * partial rows, in bytes; 0: by rule. */
struct smelt__grad_layout
smelt__grad_find_layout(const struct smelt__sparse_attn_backward *backward,
                        const struct smelt__sparse_attn_call *call, const smelt_tensor *dq,
                        size_t limit);

/* How the main kernel's items are shared between its thread blocks. */
struct smelt__grad_grid {
    int64_t blocks;
    int64_t sliced, takers; /* as in sparse_attn_bwd_params */
};

/* Of a call with this layout, with at most `most` thread blocks. */
struct smelt__grad_grid smelt__grad_find_grid(const struct smelt__sparse_attn_backward *backward,
                                              const struct smelt__grad_layout *layout,
                                              int64_t most);

#endif
