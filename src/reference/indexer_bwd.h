/*
 * The meaning of indexer_bwd in scalar C and double precision, as docs/operators.md has it. Nothing
 * in the library depends on it; checks compare kernels with it.
 *
 * `args` is what the operator takes, with host pointers and strides given: its inputs are read, its
 * outputs are not. All functions: 0, or -1 when memory runs out; any thread.
 */
#ifndef SMELT_REFERENCE_INDEXER_BWD_H
#define SMELT_REFERENCE_INDEXER_BWD_H

#include <stdint.h>

#include "reference/specs.h"
#include "smelt/indexer_bwd.h"

/*
 * A row of dq or dk is a sum of vectors, grad * weights * key or grad * weights * query. Beside it
 * stands what an error is judged by: spread    the root of the sum of their squared norms: each
 * vector's factor is rounded for itself, and this stays where they take each other away doubtful
 * the norms, added up, of those vectors whose x has a sign that fp32 may see otherwise: its size is
 * below SMELT__INDEXER_BWD_DOUBT times that of what it is a sum of
 */
struct smelt__indexer_bwd_row {
    double *grads; /* [dim] */
    double spread, doubtful;
};

#define SMELT__INDEXER_BWD_DOUBT 1e-6

/* One head of a query: its row of dq, and *dweights with, in *terms, the sum of the sizes of the
 * products that it is made of. */
int smelt__indexer_bwd_head(const struct smelt__indexer_bwd_spec *spec,
                            const smelt_indexer_bwd_args *args, int64_t query, int head,
                            struct smelt__indexer_bwd_row *row, double *dweights, double *terms);

/* One key's row of dk: all index rows are gone through. */
int smelt__indexer_bwd_key(const struct smelt__indexer_bwd_spec *spec,
                           const smelt_indexer_bwd_args *args, int64_t key,
                           struct smelt__indexer_bwd_row *row);

/* The key that slot i of a query names, or -1 where it is masked. */
int64_t smelt__indexer_bwd_slot(const smelt_indexer_bwd_args *args, int64_t query, int64_t i);

#endif
