/* The meaning of indexer_logits, in double precision. */
#ifndef SMELT_REFERENCE_INDEXER_LOGITS_H
#define SMELT_REFERENCE_INDEXER_LOGITS_H

#include <stdint.h>

#include "reference/specs.h"
#include "smelt/indexer_logits.h"

/* The tensor cores cut sums of e4m3 products off after 13 bits: what that may take, of the sum of
 * the products' sizes. */
#define SMELT__E4M3_SUM_TOLERANCE 5e-4

/* Below 2^-126 fp32 has the multiples of 2^-149 alone: what rounding to the nearest of them may
 * take of a product, however small that is. Sums of such multiples are exact. */
#define SMELT__FP32_UNDERFLOW 0x1p-150

/* What that may take of a logit: of each of its at most 128 heads' products, which are added as
 * they are rounded (an fma a head), and of the product of their sum with a scale of at most 1. */
#define SMELT__LOGIT_UNDERFLOW ((128 + 1) * SMELT__FP32_UNDERFLOW)

/* A query's rows and weights, widened; the keys that it meets. */
struct smelt__indexer_query {
    int heads, dim, dtype; /* dtype: of enum smelt__dtype */
    double *q;             /* [heads, dim] */
    double *key;           /* [dim], scratch */
    const float *weights;  /* [heads] */
};

/* Opens query number `query` of tensors of that type; 0, or -1 when memory runs out. Close it in
 * both cases. */
int smelt__indexer_query_open(struct smelt__indexer_query *opened, int heads, int dim, int dtype,
                              const smelt_const_tensor *q, const smelt_const_tensor *weights,
                              int64_t query);
void smelt__indexer_query_close(struct smelt__indexer_query *opened);

/*
 * Its logit for row `key` of k, times `scale`; -inf for NaN. *terms: as below; -inf where a sum
 * that may become 0 or of the other sign, by cutting e4m3 products off or as fp32 has no smaller
 * numbers, meets an infinite weight or scale: then any infinity is right.
 */
double smelt__indexer_logit(const struct smelt__indexer_query *query, const smelt_const_tensor *k,
                            int64_t key, double scale, double *terms);

/* Whether `got` is the infinity that such a logit is, either one where terms are -inf; or finite,
 * if it is, whatever its error. */
int smelt__indexer_logit_fits(double got, double logit, double terms);

/*
 * One query's row: logits[rows], -inf outside its window, and in `terms` (may be NULL) the sum of
 * the sizes of what each is made of, |k_scale * weight * q[d] * k[d]| over heads and elements, by
 * which its error is judged; 0 outside, -inf as above. *args: host pointers, strides given. 0, or
 * -1 when memory runs out.
 */
int smelt__indexer_logits_reference(const struct smelt__indexer_logits_spec *spec,
                                    const smelt_indexer_logits_args *args, int64_t query,
                                    double *logits, double *terms);

#endif
