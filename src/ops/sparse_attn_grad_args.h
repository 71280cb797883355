/* The arguments of sparse_attn's backward pass: their checks, and the workspace they need. */
#ifndef SMELT_OPS_SPARSE_ATTN_GRAD_ARGS_H
#define SMELT_OPS_SPARSE_ATTN_GRAD_ARGS_H

#include "ops/sparse_attn_backward.h"

enum { SMELT__BACKWARD_ALIGNMENT = 256 }; /* bytes: of the workspace and of each array in it */

/* Where each array lies in the workspace, bytes from its start, and what follows from the call. */
struct smelt__grad_layout {
    size_t partition, members, counts, keys, masks, statistics, dsink_parts, partials;
    size_t progress, sums;                         /* one after the other: zeroed together */
    size_t cursors, starts, entry_list, scan_sums; /* of lists by keys */
    size_t bytes;                                  /* of all */
    int64_t queries, groups, entries, parts;
    int64_t chunk; /* groups of a launch of the main kernel */
    /* In deterministic mode: of how many chunks partial rows are kept, 1 or 2; how many groups'
     * lists are turned around at once, a multiple of the chunk. */
    int64_t kept, round;
    size_t kept_bytes; /* of a chunk's partial rows */
    int key_stride;
};

/* Of checked extents. `limit`: of partial rows, in bytes; 0: by rule. */
struct smelt__grad_layout
smelt__grad_find_layout(const struct smelt__sparse_attn_backward *backward,
                        const struct smelt__sparse_attn_call *call, size_t limit);

/* This library's copy of a caller's struct, whatever version that was built against. */
smelt_status smelt__grad_read_args(const smelt_sparse_attn_grad_args *given,
                                   smelt_sparse_attn_grad_args *args);

/* Each INVALID_ARGUMENT by name: that the rows of all batches are numbered by an int; tensors,
 * partition and workspace, *args being the library's own copy, whose strides are packed. */
smelt_status smelt__grad_check_rows(const struct smelt__sparse_attn_call *call);
smelt_status smelt__grad_check_memory(const struct smelt__sparse_attn_backward *backward,
                                      const struct smelt__sparse_attn_call *call,
                                      const struct smelt__grad_layout *layout,
                                      smelt_sparse_attn_grad_args *args);

#endif
