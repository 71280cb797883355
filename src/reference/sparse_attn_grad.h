/*
 * The meaning of sparse attention's gradients in scalar C and double precision, as
 * docs/operators.md has it: "sparse_attn, backward". out and lse are inputs: they are taken as they
 * are given. Nothing in the library depends on it; checks compare kernels with it.
 *
 * `args` is what the operator takes, with host pointers: its inputs, strides and scale are read,
 * its outputs and its own query list are not. spec: heads, dqk, dv, topk and sink. Queries that
 * take part are queries[0..query_count), each b * T + t and in range, as often as they are named;
 * NULL means the first `query_count`. All functions: 0, or -1 when memory runs out; any thread.
 */
#ifndef SMELT_REFERENCE_SPARSE_ATTN_GRAD_H
#define SMELT_REFERENCE_SPARSE_ATTN_GRAD_H

#include <stdint.h>

#include "reference/specs.h"
#include "smelt/sparse_attn.h"

/*
 * Beside a gradient's rows stands what rounding is relative to where they cancel. A row is a sum of
 * vectors, ds * key or ds * q and p * grad_out:
 *   spread     the root of the sum of their squared norms. p and ds are rounded each for itself;
 *              where vectors point into all directions it is near the row's norm, but it stays
 * where they take each other away. cancelled  the norm that the row would have if no two numbers
 * that are added had opposite signs, nor those that dp and delta are sums of. It is what fp32's
 * rounding is relative to: where dp and delta are nearly the same, hardly anything of either is
 * left.
 */
struct smelt__sparse_attn_row_grads {
    double *grads;     /* [count, ..., dqk] */
    double *spread;    /* [count, ...]; may be NULL */
    double *cancelled; /* [count, ...]; may be NULL */
    double *max_abs;   /* [count]: largest absolute score that had a part, 0 when there is none; may
                          be NULL */
};

/* dq [count, H, dqk] of the queries. */
int smelt__sparse_attn_dq(const struct smelt__sparse_attn_spec *spec,
                          const smelt_sparse_attn_grad_args *args, const int64_t *queries,
                          int64_t query_count, const struct smelt__sparse_attn_row_grads *results);

/* dkv [key_count, dqk] of keys[0..key_count), each b * S + row, exactly: all index rows are gone
 * through, and the pairs of a query's slot and a key computed. */
int smelt__sparse_attn_dkv(const struct smelt__sparse_attn_spec *spec,
                           const smelt_sparse_attn_grad_args *args, const int64_t *queries,
                           int64_t query_count, const int64_t *keys, int64_t key_count,
                           const struct smelt__sparse_attn_row_grads *results);

/* dsink of one head, and *terms (may be NULL), what it would be if no two numbers that are added up
 * had opposite signs. */
int smelt__sparse_attn_dsink(const struct smelt__sparse_attn_spec *spec,
                             const smelt_sparse_attn_grad_args *args, const int64_t *queries,
                             int64_t query_count, int head, double *dsink, double *terms);

/* The forward call of the same inputs and query list: its outputs and workspace are none. */
smelt_sparse_attn_args smelt__sparse_attn_forward_of(const smelt_sparse_attn_grad_args *args);

#endif
