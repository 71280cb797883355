/*
 * Common parts of the plans of variant mma of sparse_attn's and sparse_scores' kernels. dqk and dv are
 * rounded up to multiples of 64 columns, since the swizzle works within 64 columns; the added columns
 * are zeros.
 */
#pragma once

#include "codegen/plan/search.h"

/* dqk and dv: rounded up. blocks: thread blocks of a query; tiles: tiles of 16 heads of a thread block;
 * last_tiles: those of the last one. */
struct smelt__mma_shape {
    int heads, dqk, dv;
    int blocks, tiles, last_tiles;
};

struct smelt__mma_shape smelt__mma_shape_of(const struct smelt__spec *spec);
/* Divides the heads evenly into the fewest blocks of at most `most` tiles. */
void smelt__mma_divide_heads(int most, struct smelt__mma_shape *shape);

/* How the warps divide the scores: by heads, by keys, and by the depth (split-K: partial sums are
 * added). */
struct smelt__score_warps {
    int heads, keys, depth;
};

/* Sets `keys` from the other two; returns 0 if a warp's part is not whole tiles. */
int smelt__score_warps_complete(struct smelt__score_warps *groups, int warps, int block_keys,
                                const struct smelt__mma_shape *shape);

/* The size of the ring of row numbers, a power of two: for all key blocks in flight, an incomplete one,
 * and the slots of one scan. */
int smelt__mma_ring_entries(const struct smelt__pipeline_shape *pipeline, int warps);

/* Adds the widths of tiles as constants. */
void smelt__mma_add_columns(const struct smelt__mma_shape *shape, struct smelt__plan *plan);

/* Does what smelt__search_plan does. If the spec has no plan even without its knobs, the message names
 * widths that fit. */
int smelt__mma_plan(const struct smelt__search *search, const struct smelt__spec *spec,
                    const struct smelt__arch *arch, struct smelt__choice *choice,
                    struct smelt__plan *plan, struct smelt__message *message);
