/*
 * Common to the plans of the kernels for few heads, whose matrices have keys as rows
 * (templates/common/few_*.cuh): variant sm90 of sparse_attn_fwd with at most 32 heads, and sparse_gqa's
 * kernels with granularity 1, 4 or 16. few_heads.c has the rule.
 */
#pragma once

#include "codegen/plan/limits.h"
#include "codegen/spec/keys.h"

enum {
    SMELT__FEW_HEADS_UNIT = 8,            /* wgmma's columns come in eights */
    SMELT__FEW_HEADS_SHARED = 227 * 1024, /* bytes */
    SMELT__FEW_HEADS_REGISTER_UNIT = 8,   /* setmaxnreg's */
    SMELT__FEW_HEADS_LEAST_GATHER = 64,   /* registers; measured: with fewer, 16 heads spill */
    SMELT__FEW_HEADS_GATHER = 88,         /* measured: with more, 32 heads spill */
};

/* The choices, and values that follow from them. */
struct smelt__few_heads {
    int heads;         /* of an item, rounded up */
    int head_blocks;   /* items of a query */
    int item_bytes;    /* of an item's description, which the roles pass on */
    int tensor_bytes;  /* of the description of an item's KV tensor, likewise */
    int query_tiles;   /* of the rows in the region of Q: also dO's in a backward pass */
    int tiles;         /* of a key block */
    int leading_tiles; /* the first ones of them, which the second product does not read */
    int leading_parts; /* in which the leading tiles are filled; 0: with the tiles after them */
    int statistics;    /* 1: the softmax statistics have a region of their own */
    int row_numbers;   /* 1: the row numbers of key blocks have a region of their own */
    int p_matrices;    /* matrices of P's shape: 1, or 2 for P and dS */
    int most_stages;   /* key blocks that the ring holds at most */
    int ring_tiles, part_tiles;
    int copy_teams; /* 1: two warps copy each key block together; above: warps that take whole blocks in turn */
    int math_registers, gather_registers; /* of a thread */
    int queries; /* of an item; 0: items are not queries, or the operator is sparse_attn */
};

/* Tiles of 64 columns. */
static inline int smelt__few_heads_tiles(int columns) {
    return (columns + 63) / 64;
}

/* The number of parts in which `tiles` tiles are filled. */
static inline int smelt__few_heads_parts(int tiles, const struct smelt__few_heads *choice) {
    return (tiles + choice->part_tiles - 1) / choice->part_tiles;
}

/* The numbers of tiles of a part among which the rules choose. */
enum { SMELT__FEW_HEADS_PART = 2, SMELT__FEW_HEADS_WIDE_PART = 4 };

/* Gives each thread of the gather `gather` registers, and the math warpgroups the rest. */
void smelt__few_heads_divide_registers(int gather, struct smelt__few_heads *choice);

/* Sets ring_tiles to the most tiles that fit into shared memory, at most those of most_stages key blocks,
 * and returns it. */
int smelt__few_heads_ring(struct smelt__few_heads *choice, struct smelt__plan *plan);

/* Adds the constants and regions that all these kernels have, and sets their threads and items. */
void smelt__few_heads_plan(const struct smelt__spec *spec, const struct smelt__few_heads *choice,
                           struct smelt__plan *plan);
