/* Inputs of the indexer's operators: q, k, weights, scales, windows. */
#ifndef SMELT_HARNESS_INDEXER_H
#define SMELT_HARNESS_INDEXER_H

#include "harness/problem.h"

/* What an operator's inputs are, by their rows in its table; T is batches * tokens, S is rows. */
struct smelt__indexer_inputs {
    int heads, dim, dtype; /* dtype: of enum smelt_indexer_dtype */
    int q, k, weights, k_scale, window_begin, window_end;
};

/*
 * Fills them all, and sets the problem's `computed` and `valid_slots` (keys in all windows). Keys
 * in no window hold NaN, so that who takes one gives himself away. With adversarial lists some
 * keys, weights and scales inside windows are NaN or infinite, too. 0, or -1 when memory runs out.
 */
int smelt__indexer_fill(struct smelt__problem *problem, const struct smelt__indexer_inputs *inputs);

#endif
