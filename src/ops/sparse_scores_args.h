/* The arguments of sparse_scores: checked, then packed for the kernel. */
#ifndef SMELT_OPS_SPARSE_SCORES_ARGS_H
#define SMELT_OPS_SPARSE_SCORES_ARGS_H

#include "ops/sparse_attn_call.h"
#include "smelt/sparse_scores.h"
#include "sparse_scores_fwd.params.h"

/* A checked call. */
struct smelt__sparse_scores_packed {
    struct sparse_scores_fwd_params params;
    int64_t queries; /* that the grid must cover; 0: nothing to launch, and no more is set */
    int free_multiprocessors;
};

/*
 * Checks *args, of whatever version, against the shape (without buckets) and fills *packed.
 * INVALID_ARGUMENT naming the argument, its value and what is legal. Reads no device memory.
 */
smelt_status smelt__sparse_scores_pack(const struct smelt__sparse_attn_shape *shape,
                                       const smelt_sparse_scores_args *args,
                                       struct smelt__sparse_scores_packed *packed);

#endif
