/*
 * Lists by keys, for the deterministic backward pass: the workspace of the pass `transpose` of
 * sparse_attn_bwd_lists, and its launch. The lists of a round's chunks are transposed at once.
 */
#pragma once

#include <stdint.h>

#include "ops/sparse_attn_params.h"
#include "runtime/kernel.h"

/* How many ints each array of sparse_attn_bwd_segments_params must have room for. */
struct smelt__segments_layout {
    int64_t starts, entries;
};

/* The number of chunks in a round, 1 or more: enough to fill a GPU, few enough that the kernel's
 * output stays in the L2 cache. */
int64_t smelt__segments_round(int64_t chunk, int64_t key_stride, int64_t key_count);

/*
 * For rounds of at most `groups` groups (from 0 on) in chunks of `chunk`, lists of key_stride and
 * key_count keys; groups * key_stride below 2^31. Depends on nothing else; more groups never give
 * less, so that it does for the last round, too.
 */
struct smelt__segments_layout smelt__segments_layout(int64_t groups, int64_t chunk,
                                                     int64_t key_stride, int64_t key_count);

/* Where the starts of a round's chunk number `chunk` begin. */
int64_t smelt__segments_starts(int64_t chunk, int64_t key_count);

/* Transposes the lists of a round, on the stream, after the kernel that wrote them. *params: everything
 * set but chunks; groups, chunk and key_count above 0; the arrays as large as the layout says, not NULL.
 * Errors: DRIVER. */
smelt_status smelt__segments_launch(const smelt_context *context,
                                    const struct smelt__kernel *transpose,
                                    const struct sparse_attn_bwd_segments_params *params,
                                    struct CUstream_st *stream);
