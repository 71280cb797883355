/* The meaning of indexer_scores, in double precision. */
#ifndef SMELT_REFERENCE_INDEXER_SCORES_H
#define SMELT_REFERENCE_INDEXER_SCORES_H

#include <stdint.h>

#include "reference/specs.h"
#include "smelt/indexer_scores.h"

/*
 * One query's row: logits[width], -inf at masked slots, and in `terms` (may be NULL) the sum of the
 * sizes of what each is made of, as smelt__indexer_logits_reference has it; 0 at masked slots.
 * *args: host pointers, strides given. 0, or -1 when memory runs out.
 */
int smelt__indexer_scores_reference(const struct smelt__indexer_scores_spec *spec,
                                    const smelt_indexer_scores_args *args, int64_t query,
                                    double *logits, double *terms);

#endif
