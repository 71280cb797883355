/* The meaning of the partition of queries into buckets (docs/operators.md), in scalar C. */
#ifndef SMELT_REFERENCE_SPARSE_ATTN_PARTITION_H
#define SMELT_REFERENCE_SPARSE_ATTN_PARTITION_H

#include <stdint.h>

#include "smelt/sparse_attn.h"

/* Arrays of the caller. */
struct smelt__partition_lists {
    int32_t *ranges;  /* [buckets][2]: a bucket's first entry in `list`, and how many it has */
    int32_t *list;    /* query numbers, bucket after bucket, each in the queries' order */
    int32_t *extents; /* beside it: 1 + the query's last valid slot, or 0 */
};

/*
 * `args`: what the operator takes, with host pointers and all strides given; indices, topk_length
 * and the query list are read. bounds[0..buckets): ascending; the last bucket takes the rest,
 * whatever its bound. Returns the number of entries in the list.
 */
int64_t smelt__partition_reference(const smelt_sparse_attn_args *args, const int32_t *bounds,
                                   int buckets, const struct smelt__partition_lists *lists);

#endif
