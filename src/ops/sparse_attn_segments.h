/*
 * Lists by keys, for the deterministic backward pass: what belongs together of the passes count,
 * scan and place of sparse_attn_bwd_lists. Chunks of groups are cut into parts, whose lists are
 * turned around side by side, all of a round's at once.
 */
#ifndef SMELT_OPS_SPARSE_ATTN_SEGMENTS_H
#define SMELT_OPS_SPARSE_ATTN_SEGMENTS_H

#include <stdint.h>

#include "ops/sparse_attn_params.h"
#include "runtime/kernel.h"

/* How many ints each array of sparse_attn_bwd_segments_params must have room for. */
struct smelt__segments_layout {
    int64_t cursors, starts, entries, sums;
};

/* How many chunks of so many groups a round has, 1 or more: so many that its passes fill a GPU, and
 * that its arrays stay below some 100 MB. */
int64_t smelt__segments_round(int64_t chunk, int64_t key_stride, int64_t key_count);

/*
 * For rounds of at most `groups` groups (from 0 on) in chunks of `chunk`, lists of key_stride and
 * key_count keys; groups * key_stride below 2^31. Depends on nothing else; more groups never give
 * less, so that it does for the last round, too.
 */
struct smelt__segments_layout smelt__segments_layout(int64_t groups, int64_t chunk,
                                                     int64_t key_stride, int64_t key_count);

/* Cuts params->groups groups into chunks and parts, and the columns among the scan's blocks: sets
 * chunks, columns, part, parts, scan_rows, scan_keys and scan_blocks from groups, chunk, key_stride
 * and key_count, all of them above 0, within the layout of as many groups or more. */
void smelt__segments_cut(struct sparse_attn_bwd_segments_params *params);

/* The three kernels, the context's. */
struct smelt__segments_kernels {
    const struct smelt__kernel *count, *scan, *place;
};

/* Turns the lists of a round around, on the stream, behind what made them: `starts` and `entries`
 * are there for what follows. The context is entered (runtime/context.h). *params: everything set
 * but scan_step, the arrays' room the layout's; not NULL. Errors: DRIVER. */
smelt_status smelt__segments_launch(const smelt_context *context,
                                    const struct smelt__segments_kernels *kernels,
                                    const struct sparse_attn_bwd_segments_params *params,
                                    struct CUstream_st *stream);

#endif
