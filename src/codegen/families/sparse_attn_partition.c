/*
 * The kernel family sparse_attn_partition: the two passes that put queries into buckets by their
 * number of valid slots (docs/operators.md). No property of an operator is compiled in, so
 * all operators share the two kernels.
 */
#include <stdio.h>

#include "codegen/families/sparse_attn_partition.h"
#include "codegen/plan/limits.h"
#include "codegen/spec/keys.h"

enum {
    COUNT_THREADS = SMELT__PARTITION_COUNT_THREADS,
    PLACE_THREADS = SMELT__PARTITION_PLACE_THREADS,
    /* Count: LOADS times 16 bytes of each thread under way hide the memory's latency, and a block
     * is small enough for four on a multiprocessor, since its end idles. Measured:
     * templates/sparse_attn_partition.lost.md. */
    COUNT_RESIDENT = 1024, /* threads of a multiprocessor */
    LOADS = 8,
    /* Place: its blocks are to be resident beside the last ones of the first pass, so that they
     * begin as soon as those have ended. */
    PLACE_RESIDENT = 1536,
    PLACE_RESIDENT_10 =
        1024,        /* from 10.0 on, for which the assembler spills at 40 registers and 48 */
    MOST_BUCKETS = 9 /* PARTITION_MOST_BUCKETS */
};

static const struct smelt__key keys[] = {
    {SMELT__REQUIRED("pass",
                     "count reads the indices, place writes the buckets' lists of query numbers"),
     SMELT__NAMES_2(count, place)},
};

static void add_threads(struct smelt__plan *plan, int threads, int resident) {
    smelt__plan_set_threads(plan, threads, resident / threads);
    smelt__plan_add(plan, "PDL", plan->arch->pdl, SMELT__DERIVED,
                    "1: has programmatic dependent launch");
}

static void plan_count(struct smelt__plan *plan) {
    add_threads(plan, COUNT_THREADS, COUNT_RESIDENT);
    smelt__plan_add(plan, "LOADS", LOADS, SMELT__DERIVED,
                    "loads of 16 bytes of a thread in flight");
    smelt__plan_add_region(plan, "COUNTS_OFFSET", COUNT_THREADS / 32 * MOST_BUCKETS * 4, 4,
                           "entries of each warp in each bucket");
}

static void plan_place(const struct smelt__arch *arch, struct smelt__plan *plan) {
    const int resident = arch->capability_major < 10 ? PLACE_RESIDENT : PLACE_RESIDENT_10;
    add_threads(plan, PLACE_THREADS, resident);
    smelt__plan_add_region(plan, "COUNTS_OFFSET", PLACE_THREADS / 32 * MOST_BUCKETS * 4, 4,
                           "entries of each warp in each bucket");
    smelt__plan_add_region(plan, "TOTALS_OFFSET", MOST_BUCKETS * 4, 4, "entries of each bucket");
    smelt__plan_add_region(plan, "PLACES_OFFSET", MOST_BUCKETS * 4, 4,
                           "where the next entry of each bucket goes");
}

static int plan_partition(const struct smelt__spec *spec, const struct smelt__arch *arch,
                          struct smelt__plan *plan, struct smelt__message *message) {
    const int64_t pass = smelt__spec_get(spec, "pass");
    (void)message; /* every architecture has both */
    if (pass == SMELT__PARTITION_COUNT)
        plan_count(plan);
    else
        plan_place(arch, plan);
    return 0;
}

const struct smelt__kernel_family smelt__sparse_attn_partition = {
    .schema = {.name = "sparse_attn_partition",
               .summary = "puts queries into buckets by their number of valid slots",
               SMELT__KEYS(keys)},
    /* Both passes; the plan is named after its pass. */
    SMELT__VARIANTS({"partition", plan_partition}),
};
