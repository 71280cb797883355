/* The arguments of the sparse attention operators: checked, then packed for the kernel. */
#ifndef SMELT_OPS_SPARSE_ATTN_ARGS_H
#define SMELT_OPS_SPARSE_ATTN_ARGS_H

#include "ops/sparse_attn_params.h"
#include "smelt/sparse_attn.h"

/* What the checks must know of the operator. */
struct smelt__sparse_attn_shape {
    int heads, dqk, dv, topk, sink;
    int buckets; /* how many; 0: a plain operator */
};

/* Bytes of workspace for the queries of *args, of which nothing but their number is looked at:
 * batches, tokens and the query list. INVALID_ARGUMENT as below. */
smelt_status smelt__sparse_attn_workspace(const struct smelt__sparse_attn_shape *shape,
                                          const smelt_sparse_attn_args *args, size_t *bytes);

/*
 * Checks *args, of whatever version, against the shape and fills *params and *workspace; *queries:
 * how many queries the grid must cover, 0 when there is nothing to launch. INVALID_ARGUMENT naming
 * the argument, its value and what is legal. Reads no device memory.
 */
smelt_status smelt__sparse_attn_pack(const struct smelt__sparse_attn_shape *shape,
                                     const smelt_sparse_attn_args *args,
                                     struct sparse_attn_fwd_params *params, void **workspace,
                                     int64_t *queries);

#endif
