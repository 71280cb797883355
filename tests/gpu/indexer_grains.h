/*
 * Parts of the test of the grains' kernels (indexer_grains.c): problems (indexer_grains_problem.c)
 * and expected results (indexer_grains_reference.c). All products and sums are exact in fp32, in
 * any order.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "indexer_bwd_grains.params.h"

enum {
    FINER = 12,      /* difference between the exponents of a coarse and a fine unit */
    MOST_ADDED = 31, /* bits of a bound */
    LARGEST_POWER = 127
};

/* Contents of the tensors. */
enum numbers {
    COARSE,       /* few digits: sums over all heads are exact */
    FINE,         /* q and the gradients have all digits, the weights one */
    SMALL,        /* FINE, and no sum reaches 1 */
    ODD,          /* COARSE, with infinities and NaN */
    HUGE_NUMBERS, /* sums overflow */
    TINY,         /* denormal sums */
    ZEROS,
    KINDS
};

/* One problem. */
struct shape {
    const char *name;
    int tokens, rows, width, group_queries, heads, dim;
    enum numbers numbers;
    int bits;    /* maximum; smaller for many groups */
    int padding; /* elements between rows of q and of weights, a multiple of 4 */
    int far;     /* 1: rows and lists so far apart that offsets exceed 2^31; on the emulator, whose
                pages are allocated on access */
};

/* A row's bounds. */
enum { COARSE_UNITS, FINE_UNITS, UNIT_KINDS };

static inline int64_t place_count(const struct indexer_bwd_grains_params *host) {
    return (int64_t)host->groups * host->group_queries;
}

static inline size_t sum_count(const struct indexer_bwd_grains_params *host) {
    return (size_t)host->rows * (size_t)host->dim;
}

/* ---- indexer_grains_problem.c ---------------------------------------------------------------- */

/* Makes a problem: the kernels' arguments with pointers to arrays on the host. */
void make_problem(const struct shape *shape, struct indexer_bwd_grains_params *host);

/* Draws the sums of dk before a launch of the pass totals. One row in four has no contribution; the
 * others have numbers, infinities, NaN, and zeros of either sign. */
void draw_sums(const struct indexer_bwd_grains_params *host);

/* ---- indexer_grains_reference.c -------------------------------------------------------------- */

/* Computes reach, the maximum and the bounds, as the passes hand them to each other. */
void reference(const struct indexer_bwd_grains_params *host, float *largest);

/* The coarse unit's exponent: the smallest with `largest` below 2^bits units, and at least that of
 * the largest power's inverse. */
int find_unit(float largest, int bits);
void find_bounds(const struct indexer_bwd_grains_params *host, int unit);
void find_grains(const struct indexer_bwd_grains_params *host, int unit);

/* Bounds on both sides of the values at which a grain doubles, for each size. */
enum edges { OF_COARSE, OF_FINE, OF_BOTH, EDGES };
void set_edges(const struct indexer_bwd_grains_params *host, enum edges edges);

/* Computes the results of the pass totals in sums and totals. Four columns without contributions do
 * not change between the first and the last launch, not even the sign of a zero. */
void add_totals(const struct indexer_bwd_grains_params *host);
