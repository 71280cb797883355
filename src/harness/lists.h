/* Index rows of problems. Pure functions of options and query number. */
#ifndef SMELT_TOOLS_LISTS_H
#define SMELT_TOOLS_LISTS_H

#include "harness/problem.h"

/* Fills the row of a query (b * T + t), options->width slots. Returns how many stand before the
 * masked tail of a list that is `counted`; without meaning for the others. */
int64_t smelt__lists_make(const struct smelt__problem_options *options, int64_t query,
                          int32_t *row);

/* Whether the lists' valid slots come first, so that their number says it all. */
int smelt__lists_counted(const struct smelt__problem_options *options);

/* A topk_length for lists that have no natural one: also negative and above the width. */
int32_t smelt__lists_length(const struct smelt__problem_options *options, int64_t query);

/* Whether the lists never name this row, so that it can hold NaN: a kernel that reads it in place
 * of a masked one gives itself away. Adversarial lists leave out the first and the last. */
int smelt__lists_avoids(const struct smelt__problem_options *options, int64_t row);

#endif
