/* What the rows of dense attention's operators share (dense_lse.c). */
#pragma once

#include "harness/problem.h"
#include "reference/operators.h"

/* Its inputs, by their rows in an operator's table. */
struct smelt__dense_inputs {
    struct smelt__dense_lse_spec spec;
    int q, k, window_begin, window_end;
};

/* Fills q, k and windows, and `used`[rows]: the keys in some window; others hold NaN. Sets `computed`
 * and `valid_slots` (keys in all windows). 0, or -1 when memory runs out. */
int smelt__dense_fill(struct smelt__problem *problem, const struct smelt__dense_inputs *inputs,
                      uint8_t *used);

/* Multiplications of T windows of S keys. */
double smelt__dense_multiplications(const struct smelt__dense_lse_spec *spec,
                                    const struct smelt__problem_options *given);
