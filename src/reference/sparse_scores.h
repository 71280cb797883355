/* The meaning of sparse_scores in scalar C and double precision, as docs/operators.md has it. */
#ifndef SMELT_REFERENCE_SPARSE_SCORES_H
#define SMELT_REFERENCE_SPARSE_SCORES_H

#include <stdint.h>

#include "reference/specs.h"
#include "smelt/sparse_attn.h"
#include "smelt/sparse_scores.h"

/* The attention whose probabilities these are: its spec, and its forward call's inputs, with the
 * query list. */
struct smelt__sparse_attn_spec
smelt__sparse_scores_attention(const struct smelt__sparse_scores_spec *spec);
smelt_sparse_attn_args smelt__sparse_scores_attention_args(const smelt_sparse_scores_args *args);

/*
 * One query's (b * T + t) row of the target, [width], and in *max_abs the largest absolute score, 0
 * when there is none. *args: host pointers; lse is taken as it is given. 0, or -1 when memory runs
 * out. Any thread.
 */
int smelt__sparse_scores_reference(const struct smelt__sparse_scores_spec *spec,
                                   const smelt_sparse_scores_args *args, int64_t query,
                                   double *target, double *max_abs);

#endif
