/*
 * What the test of the grains' kernels (indexer_grains.c) is made of: its problems
 * (indexer_grains_problem.c) and what the kernels are to make of them (indexer_grains_reference.c).
 * Numbers are such that fp32 holds every product and every sum, in any order.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "indexer_bwd_grains.params.h"

enum {
    FINER = 12,      /* of a coarse unit's exponent, a fine one's */
    MOST_ADDED = 31, /* bits of a bound */
    LARGEST_POWER = 127
};

/* What the tensors hold. */
enum numbers {
    COARSE,       /* few digits: sums over all heads are exact */
    FINE,         /* of q and the gradients all digits, of the weights one */
    SMALL,        /* FINE, and no sum reaches 1 */
    ODD,          /* COARSE, and infinities and NaN among them */
    HUGE_NUMBERS, /* sums pass the largest number */
    TINY,         /* denormal sums */
    ZEROS,
    KINDS
};

/* One problem. */
struct shape {
    const char *name;
    int tokens, rows, width, group_queries, heads, dim;
    enum numbers numbers;
    int bits;    /* at most; less where so many groups have no room */
    int padding; /* elements between rows of q and of weights, a multiple of 4 */
    int far; /* 1: rows and lists so far apart that places pass 2^31; on the emulator, whose pages
                exist when touched */
};

/* Of a row's bounds. */
enum { COARSE_UNITS, FINE_UNITS, UNIT_KINDS };

static inline int64_t place_count(const struct indexer_bwd_grains_params *host) {
    return (int64_t)host->groups * host->group_queries;
}

static inline size_t sum_count(const struct indexer_bwd_grains_params *host) {
    return (size_t)host->rows * (size_t)host->dim;
}

/* ---- indexer_grains_problem.c ---------------------------------------------------------------- */

/* The kernels' arguments with pointers to a problem's arrays on the host. */
void make_problem(const struct shape *shape, struct indexer_bwd_grains_params *host);

/* Sums of dk before a launch of the pass totals. One row in four was added nothing to. Of the
 * others columns are numbers, infinities and NaN, and zeros of either sign. */
void draw_sums(const struct indexer_bwd_grains_params *host);

/* ---- indexer_grains_reference.c -------------------------------------------------------------- */

/* Reach, the largest of all, bounds: as the passes leave them to one another. */
void reference(const struct indexer_bwd_grains_params *host, float *largest);

/* The coarse unit's exponent, the least such that `largest` is below 2^bits units; at least that of
 * the largest power's inverse. */
int find_unit(float largest, int bits);
void find_bounds(const struct indexer_bwd_grains_params *host, int unit);
void find_grains(const struct indexer_bwd_grains_params *host, int unit);

/* Bounds on both sides of where a grain doubles, of each size; what adds up to them is another
 * pass's matter. */
enum edges { OF_COARSE, OF_FINE, OF_BOTH, EDGES };
void set_edges(const struct indexer_bwd_grains_params *host, enum edges edges);

/* What the pass totals leaves in sums and totals. Four columns that nothing was added to stay as
 * they are between the first launch and the last, the sign of a zero, too. */
void add_totals(const struct indexer_bwd_grains_params *host);
