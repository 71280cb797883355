/* The kernels of sparse_attn's backward pass, and what follows from them and a call's extents: the
 * layout of the workspace and the distribution of the main kernel's work over thread blocks. */
#pragma once

#include "codegen/families/sparse_attn.h"
#include "codegen/families/sparse_attn_bwd.h"
#include "ops/call.h"
#include "ops/sparse_attn_dkv.h"
#include "ops/sparse_attn_partition.h"

/* The backward part of an operator. Immutable after creation. */
struct smelt__sparse_attn_backward {
    const smelt_operator *op;
    struct smelt__sparse_attn_shape {
        int heads, dqk, dv, topk, sink;
        int buckets; /* how many; 0: a plain operator */
    } shape;
    const int *bounds; /* of the buckets */
    int deterministic;
    const struct smelt__kernel *const *kernels; /* by enum smelt__sparse_attn_backward_kernel */
    struct smelt__sparse_attn_bwd_launch main;  /* of the main kernel's plan */
    int sides;           /* items of a group whose dkv a cluster sums before writing it: 2 with
                            pairs, else 1 */
    int64_t main_blocks; /* thread blocks of the main kernel that fit on the device at once */
};

/* Where each array lies in the workspace, in bytes from its start, and counts that follow from the
 * call. */
struct smelt__grad_layout {
    size_t partition, members, masks, statistics, dsink_parts;
    /* 0: the key lists lie in the workspace, with stride dkv.key_stride. Else query q's list lies
     * at the start of its rows of dq, and this is the stride between lists, in keys. The main
     * kernel writes a query's rows of dq only after reading its list. */
    int64_t dq_list_stride;
    int64_t dq_side_stride; /* between the list copies of a query's items; 0: one shared list */
    size_t slices;          /* partial dq of items that several thread blocks share */
    size_t progress;        /* directly before the sums, so that one fill zeroes both */
    struct smelt__dkv_layout dkv;
    size_t bytes; /* of the whole workspace */
    int64_t queries, entries, parts;
};

/* The inputs of the layout of dkv's sums. */
struct smelt__dkv_shape smelt__grad_shape(const struct smelt__sparse_attn_backward *backward);

/* The layout for checked extents. dq is as the caller passed it, unchecked; data NULL: not known. */
struct smelt__grad_layout
smelt__grad_find_layout(const struct smelt__sparse_attn_backward *backward,
                        const smelt_sparse_attn_grad_args *args);

/* How the main kernel's items are distributed over its thread blocks. */
struct smelt__grad_grid {
    int64_t blocks;
    int64_t sliced, slice_ctas; /* as in sparse_attn_bwd_params */
};

/* The grid for a call with this layout, of at most `most` thread blocks. */
struct smelt__grad_grid smelt__grad_find_grid(const struct smelt__sparse_attn_backward *backward,
                                              const struct smelt__grad_layout *layout,
                                              int64_t most);
