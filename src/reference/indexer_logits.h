/* The meaning of indexer_logits, in double precision. */
#ifndef SMELT_REFERENCE_INDEXER_LOGITS_H
#define SMELT_REFERENCE_INDEXER_LOGITS_H

#include <stdint.h>

#include "smelt/indexer_logits.h"

/*
 * One query's row: logits[rows], -inf outside its window, and in `terms` (may be NULL) the sum of
 * the sizes of what each is made of, |k_scale * weight * q[d] * k[d]| over heads and elements, by
 * which its error is judged; 0 outside. *args: host pointers, strides given. 0, or -1 when memory
 * runs out.
 */
int smelt__indexer_logits_reference(const smelt_indexer_logits_spec *spec,
                                    const smelt_indexer_logits_args *args, int64_t query,
                                    double *logits, double *terms);

#endif
