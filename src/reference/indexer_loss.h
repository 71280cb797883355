/* The meaning of indexer_loss, in double precision. */
#ifndef SMELT_REFERENCE_INDEXER_LOSS_H
#define SMELT_REFERENCE_INDEXER_LOSS_H

#include <stdint.h>

#include "smelt/indexer_loss.h"

struct smelt__indexer_loss_found {
    double weight; /* of the query, 0 where it has no loss */
    double loss;   /* the weight in it */
    double terms;  /* sum of p[i] * |ln p[i] - ln q[i]| */
};

/* One query. *args: host pointers, strides given. q, p and grad (may be NULL): [width], 0 at masked
 * slots and, but for q, where the query has no loss. */
struct smelt__indexer_loss_found smelt__indexer_loss_reference(const smelt_indexer_loss_args *args,
                                                               int64_t query, double *q, double *p,
                                                               double *grad);

#endif
