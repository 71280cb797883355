/* How targets, attention's probabilities summed over heads, are compared (sparse_scores,
 * sparse_gqa_scores). */
#pragma once

#include <math.h>

#include "harness/operator.h"

enum { SMELT__TARGET_RELATIVE, SMELT__TARGET_SCORE, SMELT__TARGET_METRICS };
enum { SMELT__TARGET_NUMBER, SMELT__TARGET_MASKED, SMELT__TARGET_RULES };

/* The metrics and rules for a set of outputs; `whose`: the row that a slot is one of. */
#define SMELT__TARGET_METRIC_ROWS(outputs, whose)                                                  \
    [SMELT__TARGET_RELATIVE] = {"relative_error",                                                  \
                                "target",                                                          \
                                "target, relative",                                                \
                                "error of a slot, relative to the " whose "'s sum,",               \
                                SMELT__LARGEST,                                                    \
                                outputs},                                                          \
    [SMELT__TARGET_SCORE] = {"", "largest_score", NULL, "score", SMELT__LARGEST, 0}
#define SMELT__TARGET_RULE_ROWS(outputs)                                                           \
    [SMELT__TARGET_NUMBER] = {"number", outputs,                                                   \
                              "a slot's target is NaN, infinite, negative or not written"},        \
    [SMELT__TARGET_MASKED] = {"masked_slot", outputs, "the target of a masked slot is not 0"}

/* The largest error of a slot, relative to its row's sum: the tensor cores' truncation of its score (at
 * most 2^-23 of the sum for each of its dqk / 16 = 36 steps), the rounding of lse and of the exponent
 * to fp32, and of the sum over heads. */
static inline void smelt__target_judge(const struct smelt__problem *problem, int64_t compared,
                                       struct smelt__metric_result *results) {
    (void)problem, (void)compared;
    results[SMELT__TARGET_RELATIVE].bar = 3e-5 + 4.5e-6 * results[SMELT__TARGET_SCORE].value;
}

/* A smaller sum (sinks have all of the weight) counts as 1e-30, below which exponentials leave fp32's
 * normal range. `score`: the largest. */
static inline void smelt__target_compare(const float *got, const double *expected, int64_t width,
                                         double score, struct smelt__finding *finding) {
    double sum = 0;
    smelt__finding_enlarge(finding, SMELT__TARGET_SCORE, score, 0);
    for (int64_t i = 0; i < width; i++)
        sum += expected[i];
    for (int64_t i = 0; i < width; i++) {
        /* Only a masked slot's is exactly 0: others are exp() of doubles. */
        if (!smelt__finding_rule(finding, SMELT__TARGET_NUMBER, isfinite(got[i]) && got[i] >= 0,
                                 i) ||
            (expected[i] == 0 &&
             !smelt__finding_rule(finding, SMELT__TARGET_MASKED, got[i] == 0, i)))
            return;
        smelt__finding_enlarge(finding, SMELT__TARGET_RELATIVE,
                               fabs((double)got[i] - expected[i]) / fmax(sum, 1e-30), i);
    }
}
