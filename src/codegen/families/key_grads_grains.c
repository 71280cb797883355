/*
 * The kernel family key_grads_grains, for the deterministic mode: the grain of each row of dk, a
 * power of two to which all additions to the row are rounded, and the sums of parts that were rounded
 * to different grains. No property of an operator is compiled in, so all operators share these
 * kernels.
 */
#include "codegen/families/key_grads_grains.h"

#include <stdio.h>

#include "codegen/plan/limits.h"
#include "codegen/spec/keys.h"

enum {
    THREADS = 256,
    BLOCKS = 4, /* of a multiprocessor: bound by memory */
    /* Of the pass `bounds`. */
    BOUNDS_THREADS = 1024,
    BIN_BYTES = 2 * 4, /* units of two kinds */
    MOST_BINS = 16 * 1024,
};

static const struct smelt__key keys[] = {
    {SMELT__REQUIRED(
         "pass", "reach, bounds: the most that queries, then keys, add up to; grains: the powers "
                 "of two; totals: sums of several parts of the queries, added up; bins: the "
                 "powers of two of sparse_gqa"),
     SMELT__NAMES_5(reach, bounds, grains, totals, bins)},
};

static int plan_grains(const struct smelt__spec *spec, const struct smelt__arch *arch,
                       struct smelt__plan *plan, struct smelt__message *message) {
    const int64_t pass = smelt__spec_get(spec, "pass");
    const int bounds = pass == SMELT__GRAINS_BOUNDS;
    const int bins = MOST_BINS * BIN_BYTES + BOUNDS_THREADS <= arch->shared_per_block
                         ? MOST_BINS
                         : MOST_BINS / 2; /* that every architecture has room for */
    (void)message;                        /* every architecture has all of them */
    smelt__plan_set_threads(plan, bounds ? BOUNDS_THREADS : THREADS, bounds ? 1 : BLOCKS);
    if (bounds) {
        smelt__plan_add(plan, "BINS", bins, SMELT__DERIVED, "rows that are added up by blocks");
        smelt__plan_add_region(plan, "BINS_OFFSET", bins * BIN_BYTES, 16, "sums of rows");
    }
    if (pass < SMELT__GRAINS_TOTALS)
        smelt__plan_add_region(plan, "TOPS_OFFSET", plan->threads / 32 * 4, 4,
                               "the largest of each warp");
    return 0;
}

const struct smelt__kernel_family smelt__key_grads_grains = {
    .schema =
        {.name = "key_grads_grains",
         .summary =
             "powers of two that additions to rows of dk are rounded by, so that sums are exact",
         SMELT__KEYS(keys)},
    /* All passes; a plan is named after its pass. */
    SMELT__VARIANTS({"grains", plan_grains}),
};
