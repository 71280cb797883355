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
    int heads;                    /* of an item, rounded up */
    int head_blocks;              /* items of a query */
    int item_bytes, tensor_bytes; /* as the roles pass them on */
    int query_tiles;              /* of q */
    int tiles;                    /* of a key block */
    int leading_tiles;            /* of them no values */
    int leading_parts;            /* in which these are filled; 0: with the first values */
    int statistics;               /* 1: they have a region of their own */
    int numbers;                  /* 1: so do the numbers of a block's rows */
    int weights;                  /* tiles of P's kind */
    int most_stages;
    int ring_tiles, part_tiles;
    int math_registers, gather_registers;
    int queries; /* of an item; 0: it is not of queries, or of sparse_attn */
};

/* Tiles of 64 columns. */
static inline int smelt__few_heads_tiles(int columns) {
    return (columns + 63) / 64;
}

/* The parts in which so many tiles are filled. */
static inline int smelt__few_heads_parts(int tiles, const struct smelt__few_heads *choice) {
    return (tiles + choice->part_tiles - 1) / choice->part_tiles;
}

/* Tiles of PART_TILES where the rule has no reason for another number. */
enum { SMELT__FEW_HEADS_PART = 2, SMELT__FEW_HEADS_WIDE_PART = 4 };

/* Gives the gather so many registers, and the warpgroups that compute the others. */
void smelt__few_heads_divide_registers(int gather, struct smelt__few_heads *choice);

/* The most tiles of the ring that fit, of at most most_stages key blocks. */
int smelt__few_heads_ring(struct smelt__few_heads *choice, struct smelt__plan *plan);

/* Adds the constants and regions of all these kernels, and what launches them alike. */
void smelt__few_heads_plan(const struct smelt__spec *spec, const struct smelt__few_heads *choice,
                           struct smelt__plan *plan);
