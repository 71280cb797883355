/* What the operator sparse_attn's spec says beyond its keys. */
#pragma once

#include "codegen/family.h"

/* The list's numbers, and topk itself. */
enum { SMELT__SPARSE_ATTN_MOST_BUCKETS = SMELT__MAX_LIST + 1 };

/* The bounds of the operator's buckets, ascending, the last one topk; returns how many there are, 0
 * for an operator without buckets. */
int smelt__sparse_attn_bounds(const struct smelt__spec *spec,
                              int bounds[SMELT__SPARSE_ATTN_MOST_BUCKETS]);

/* The roles of the backward pass's kernels (struct smelt__expansion), in the order of launch. The
 * partition's exist only with buckets, TRANSPOSE and SUM only with `deterministic`. */
enum smelt__sparse_attn_backward_kernel {
    SMELT__BACKWARD_PARTITION_COUNT,
    SMELT__BACKWARD_PARTITION_PLACE,
    SMELT__BACKWARD_GROUP,
    SMELT__BACKWARD_ROWS,
    SMELT__BACKWARD_TRANSPOSE,
    SMELT__BACKWARD_MAIN,
    SMELT__BACKWARD_SUM,
    SMELT__BACKWARD_FINISH
};
