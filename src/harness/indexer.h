/* What the rows of indexer_logits and indexer_topk share: their options, and their inputs: q, k,
 * weights, scales, windows. */
#ifndef SMELT_HARNESS_INDEXER_H
#define SMELT_HARNESS_INDEXER_H

#include "harness/problem.h"

struct smelt__random;

/* Of their rows (harness/operator.h): the functions of these names. */
void smelt__indexer_defaults(const void *spec, struct smelt__problem_options *given);
void smelt__indexer_small(const void *spec, struct smelt__problem_options *given);
void smelt__indexer_draw(const void *spec, struct smelt__random *random,
                         struct smelt__problem_options *given);
int smelt__indexer_variation(int number, struct smelt__problem_options *given);
int smelt__indexer_trial(const void *spec, int number, struct smelt__problem_options *given);

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
