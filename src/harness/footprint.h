/*
 * What of each tensor of a problem the operator's meaning takes in: everything else must be neither
 * read nor written. A pure function of the problem, by the operator's row; left out are, for
 * example, queries that are not to be computed, KV rows that no list names, and the gaps.
 */
#pragma once

#include "harness/problem.h"

struct smelt__interval {
    int64_t begin, end; /* bytes from the tensor's first */
};

/* Of one tensor: ascending and disjoint once made. */
struct smelt__footprint {
    struct smelt__interval *intervals;
    size_t count, capacity;
};

struct smelt__footprints {
    const struct smelt__problem *problem;
    int inputs;                                           /* 0: outputs alone are asked for */
    int failed;                                           /* out of memory */
    struct smelt__footprint tensors[SMELT__MOST_TENSORS]; /* by the table's rows */
};

/* Makes the footprints of all tensors that are there, or of the outputs alone. 0, or -1 when memory
 * runs out; free them in both cases. */
int smelt__footprints_make(struct smelt__footprints *footprints,
                           const struct smelt__problem *problem, int inputs);
void smelt__footprints_free(struct smelt__footprints *footprints);

/* For the operators' rows: `count` elements from number `first` on; nothing when the tensor is not
 * there or not asked for. */
void smelt__touch(struct smelt__footprints *footprints, int tensor, int64_t first, int64_t count);
/* A whole row, by its indices as smelt__problem_at takes them. */
void smelt__touch_row(struct smelt__footprints *footprints, int tensor, int64_t i, int64_t k,
                      int64_t l);
