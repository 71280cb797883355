/*
 * The meaning of sparse attention in scalar C and double precision, as docs/operators.md has it:
 * "sparse_attn, forward". Nothing in the library depends on it; checks compare kernels with it.
 */
#ifndef SMELT_REFERENCE_SPARSE_ATTN_H
#define SMELT_REFERENCE_SPARSE_ATTN_H

#include <stdint.h>

#include "reference/bf16.h"
#include "reference/specs.h"
#include "smelt/sparse_attn.h"

/* Packed results of `count` queries. Any pointer may be NULL. */
struct smelt__sparse_attn_results {
    double *out;        /* [count, H, dv] */
    double *lse;        /* [count, H], -inf for a query without a valid slot */
    double *max_logits; /* [count, H], likewise */
    double *max_abs;    /* [count]: largest absolute score, 0 when there is none */
    double *out_terms;  /* [count, H, dv]: out as it would be if no value were negative, which is
                           what the rounding of its terms adds up to */
};

/*
 * Computes queries[0..count), each b * T + t and in range; queries NULL means the first `count`.
 * `args` is what the operator takes, with host pointers: its inputs, strides and scale are read,
 * its outputs and its own query list are not. spec: heads, dqk, dv, topk and sink. 0, or -1 when
 * memory runs out. Any thread.
 */
int smelt__sparse_attn_reference(const struct smelt__sparse_attn_spec *spec,
                                 const smelt_sparse_attn_args *args, const int64_t *queries,
                                 int64_t count, const struct smelt__sparse_attn_results *results);

/* The slots of query (b * T + t) that are valid, at most spec->topk of them: their rows in slot
 * order go to rows[width] (may be NULL). Returns their number. */
int64_t smelt__sparse_attn_valid_rows(const struct smelt__sparse_attn_spec *spec,
                                      const smelt_sparse_attn_args *args, int64_t query,
                                      int64_t *rows);

/* ln(exp(lse) + exp(sink)), by which a head's probabilities are divided; without a sink lse. */
double smelt__sparse_attn_denominator(const struct smelt__sparse_attn_spec *spec,
                                      const smelt_sparse_attn_args *args, int head, double lse);

/* The public strides with packed tensors' zeros replaced by what they stand for. */
void smelt__sparse_attn_resolve_strides(const struct smelt__sparse_attn_spec *spec,
                                        smelt_sparse_attn_args *args);

#endif
