/* How targets, attention's probabilities summed over heads, are compared (sparse_scores,
 * sparse_gqa_scores). */
#pragma once

#include <math.h>

#include "harness/operator.h"

/* The largest error of a slot, relative to its row's sum, with a score of `score`: the tensor cores'
 * truncation of it (at most 2^-23 of the sum for each of its dqk / 16 = 36 steps), the rounding of lse
 * and of the exponent to fp32, and of the sum over heads. */
static inline double smelt__target_bar(double score) {
    return 3e-5 + 4.5e-6 * score;
}

/* `number`, `masked_slot`: rules; `relative`: a metric. A smaller sum (sinks have all of the weight)
 * counts as 1e-30, below which exponentials leave fp32's normal range. */
static inline void smelt__target_compare(const float *got, const double *expected, int64_t width,
                                         int number, int masked_slot, int relative,
                                         struct smelt__finding *finding) {
    double sum = 0;
    for (int64_t i = 0; i < width; i++)
        sum += expected[i];
    for (int64_t i = 0; i < width; i++) {
        if (!smelt__finding_rule(finding, number, isfinite(got[i]) && got[i] >= 0, i) ||
            (expected[i] == 0 && /* only a masked slot's is exactly 0: others are exp() of
                                    doubles */
             !smelt__finding_rule(finding, masked_slot, got[i] == 0, i)))
            return;
        smelt__finding_enlarge(finding, relative,
                               fabs((double)got[i] - expected[i]) / fmax(sum, 1e-30), i);
    }
}
