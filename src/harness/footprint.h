/*
 * The bytes of each tensor that a kernel may read or write by the operator's definition. A pure
 * function of the problem; the operator's row supplies it. It excludes, for example, queries that
 * are not computed, KV rows that no list names, and gaps.
 */
#pragma once

#include "harness/problem.h"

struct smelt__interval {
    int64_t begin, end; /* byte offsets in the tensor */
};

/* One tensor's intervals: ascending and disjoint in the result. */
struct smelt__footprint {
    struct smelt__interval *intervals;
    size_t count, capacity;
};

struct smelt__footprints {
    const struct smelt__problem *problem;
    int inputs;                                           /* 0: only outputs are requested */
    int failed;                                           /* out of memory */
    struct smelt__footprint tensors[SMELT__MOST_TENSORS]; /* by the table's rows */
};

/* Makes the footprints of all given tensors, or of the outputs only. 0; -1: out of memory. Free
 * them in both cases. */
int smelt__footprints_make(struct smelt__footprints *footprints,
                           const struct smelt__problem *problem, int inputs);
void smelt__footprints_free(struct smelt__footprints *footprints);

/* For the operators' rows: adds `count` elements from number `first` on, unless the tensor is
 * absent or not requested. */
void smelt__touch(struct smelt__footprints *footprints, int tensor, int64_t first, int64_t count);
/* A whole row, by its indices as smelt__problem_at takes them. */
void smelt__touch_row(struct smelt__footprints *footprints, int tensor, int64_t i, int64_t k,
                      int64_t l);
/* All rows, as of tensors that are not touched partly. */
void smelt__touch_whole(struct smelt__footprints *footprints, int tensor);
