/* The meaning of indexer_topk, as far as numbers in double precision tell it: see
 * docs/operators.md. */
#ifndef SMELT_REFERENCE_INDEXER_TOPK_H
#define SMELT_REFERENCE_INDEXER_TOPK_H

#include <stdint.h>

#include "reference/specs.h"
#include "smelt/indexer_topk.h"

/* One query's logits in double precision, and what their errors are relative to; see
 * reference/indexer_logits.h. [rows] each. *args: host pointers, strides given. 0, or -1 when
 * memory runs out. */
int smelt__indexer_topk_reference(const struct smelt__indexer_topk_spec *spec,
                                  const smelt_indexer_topk_args *args, int64_t query,
                                  double *logits, double *terms);

/*
 * How wrong a choice is. Logits that were computed with an error of at most e * terms, and what
 * fp32 loses near 0 (SMELT__LOGIT_UNDERFLOW), are chosen from rightly only if no key that was left
 * out is better than one that was chosen by more than e times the two's terms and twice that loss:
 * the least such e, of the best left out and the worst chosen. `chosen[s]`: whether key s is among
 * them. Keys whose logits or terms are not finite are not looked at.
 */
double smelt__indexer_topk_error(const double *logits, const double *terms, const uint8_t *chosen,
                                 int64_t begin, int64_t end);

/*
 * Of a choice among infinite logits, or between them and finite ones, a chosen key that a key left
 * out comes before: +inf comes before all, -inf (also NaN's) behind all, the lower index before
 * the higher of one infinity. -1 when there is none. Where terms are -inf either infinity is right
 * (reference/indexer_logits.h): it is taken for the one that suits the choice.
 */
int64_t smelt__indexer_topk_misplaced(const double *logits, const double *terms,
                                      const uint8_t *chosen, int64_t begin, int64_t end);

#endif
