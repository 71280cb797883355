/*
 * What the plans of sparse attention's kernels in variant mma have in common. Rows of tiles are whole
 * groups of 64 columns, within which the swizzle works: dqk and dv are rounded up, and the further
 * columns are zeros.
 */
#pragma once

#include "codegen/plan/search.h"

/* The columns of tiles; the heads, and in tiles those of a thread block and of the last one. */
struct smelt__mma_shape {
    int heads, dqk, dv;
    int blocks, tiles, last_tiles;
};

struct smelt__mma_shape smelt__mma_shape_of(const struct smelt__spec *spec);
/* Divides the heads evenly into the fewest blocks of at most `most` tiles. */
void smelt__mma_divide_heads(int most, struct smelt__mma_shape *shape);

/* The formation of the warps that compute the scores: side by side over heads, over keys, and over the
 * depth, whose partial sums are added. */
struct smelt__score_warps {
    int heads, keys, depth;
};

/* Sets `keys` from the others. 0: a warp has no whole tiles. */
int smelt__score_warps_complete(struct smelt__score_warps *groups, int warps, int block_keys,
                                const struct smelt__mma_shape *shape);

/* Row numbers that a ring of key blocks holds, a power of two: of every block under way, an incomplete
 * one and a scan's worth. */
int smelt__mma_ring_entries(const struct smelt__pipeline_shape *pipeline, int warps);

/* Adds the widths of tiles as constants. */
void smelt__mma_add_columns(const struct smelt__mma_shape *shape, struct smelt__plan *plan);

/* smelt__search_plan; the message of a spec that has no plan without its knobs either names widths that
 * fit. */
int smelt__mma_plan(const struct smelt__search *search, const struct smelt__spec *spec,
                    const struct smelt__arch *arch, struct smelt__choice *choice,
                    struct smelt__plan *plan, struct smelt__message *message);
