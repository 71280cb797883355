/* The arguments of sparse_attn's forward pass: checked, then packed for the kernel. */
#ifndef SMELT_OPS_SPARSE_ATTN_ARGS_H
#define SMELT_OPS_SPARSE_ATTN_ARGS_H

#include "ops/sparse_attn_call.h"

/* Bytes of workspace for the queries of *args, of which nothing but their number is looked at:
 * batches, tokens and the query list. INVALID_ARGUMENT as below. */
smelt_status smelt__sparse_attn_workspace(const struct smelt__sparse_attn_shape *shape,
                                          const smelt_sparse_attn_args *args, size_t *bytes);

/* A checked call. */
struct smelt__sparse_attn_packed {
    struct sparse_attn_fwd_params params;
    int64_t
        queries; /* that the grid must cover; 0: there is nothing to launch, and no more is set */
    void *workspace;
    int free_multiprocessors;
};

/*
 * Checks *args, of whatever version, against the shape and fills *packed. INVALID_ARGUMENT naming
 * the argument, its value and what is legal. Reads no device memory.
 */
smelt_status smelt__sparse_attn_pack(const struct smelt__sparse_attn_shape *shape,
                                     const smelt_sparse_attn_args *args,
                                     struct smelt__sparse_attn_packed *packed);

#endif
