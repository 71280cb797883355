/*
 * The partition of queries into buckets by their number of valid slots: two kernels that every
 * bucketed operator of a context shares, and the layout of what they write.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "ops/sparse_attn_params.h"
#include "ops/sparse_attn_table.h"
#include "runtime/kernel.h"

/* Where each array lies in the workspace: bytes from its start. See the params struct for what they
 * hold. */
struct smelt__partition_layout {
    size_t ranges, list, extents, packed, histograms;
    size_t bytes; /* of all */
};

/* Of `queries` entries (0..2^31 - 1: query_capacity with a query list, else batches * tokens) in
 * 1..PARTITION_MOST_BUCKETS buckets. Depends on nothing else; more
 * queries never need less. */
struct smelt__partition_layout smelt__partition_layout(int64_t queries, int buckets);

/* The two kernels, the context's. */
struct smelt__partition_kernels {
    const struct smelt__kernel *count, *place;
};

/*
 * Arguments for both kernels: the queries of a forward call into `buckets` buckets with the
 * ascending `bounds` (valid slots at most; the last one's is not looked at). *attn: checked and
 * packed, its query_capacity the layout's `queries`, from 1 on, its width at most
 * SMELT__PARTITION_MOST_SLOTS. `workspace`: device memory of the layout's size, aligned to
 * SMELT__PARTITION_ALIGNMENT.
 */
struct sparse_attn_partition_params smelt__partition_params(const struct work_params *work,
                                                            const int *bounds, int buckets,
                                                            void *workspace);

/* Makes *work refer to the partition's list. */
void smelt__partition_apply(const struct sparse_attn_partition_params *partition,
                            struct work_params *work);

/* Launches both kernels, the second with PDL (runtime/kernel.h). Later work in the stream, with PDL
 * or without, finds `ranges`, `list` and `extents` complete. Errors: DRIVER. */
smelt_status smelt__partition_launch(const smelt_context *context,
                                     const struct smelt__partition_kernels *kernels,
                                     const struct sparse_attn_partition_params *params,
                                     struct CUstream_st *stream);
