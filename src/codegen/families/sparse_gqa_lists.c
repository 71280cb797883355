/*
 * The kernel family sparse_gqa_lists: the reverse index of sparse_gqa's lists, for each block of keys
 * the queries that chose it (templates/sparse_gqa_lists.params.h). No property of an operator is
 * compiled in, so all operators share these kernels.
 */
#include "codegen/families/sparse_gqa.h"

static const struct smelt__key keys[] = {
    {SMELT__REQUIRED("pass",
                     "count: pairs of each list; scan: where they begin; fill: writes them; unite: "
                     "of tiles of queries"),
     SMELT__NAMES_4(count, scan, fill, unite)},
    {SMELT__GQA_UNITE},
};

static int plan_lists(const struct smelt__spec *spec, const struct smelt__arch *arch,
                      struct smelt__plan *plan, struct smelt__message *message) {
    static const int threads[] = {[SMELT__GQA_LISTS_COUNT] = 256,
                                  [SMELT__GQA_LISTS_SCAN] = 1024,
                                  [SMELT__GQA_LISTS_FILL] = 256,
                                  [SMELT__GQA_LISTS_UNITE] = 128};
    const int64_t pass = smelt__spec_get(spec, "pass");
    const int unite = pass == SMELT__GQA_LISTS_UNITE, warps = threads[pass] / SMELT__WARP;
    const int rows = pass == SMELT__GQA_LISTS_FILL ? warps : 1; /* of counters */
    (void)arch, (void)message; /* every architecture has all of them */
    smelt__plan_set_threads(plan, threads[pass], 1);
    smelt__plan_add(plan, "UNITES", unite || smelt__spec_get(spec, "unite"), SMELT__FROM_SPEC,
                    "1: lists may be united");
    if (pass == SMELT__GQA_LISTS_SCAN) {
        smelt__plan_add_region(plan, "TOTALS_OFFSET", 2 * warps * 4, 4,
                               "pairs and segments of each warp");
        smelt__plan_add_region(plan, "BINS_OFFSET", threads[pass] * 4, 4,
                               "segments of each number");
        return 0;
    }
    if (unite) {
        smelt__plan_add(plan, "MOST_SLOTS", SMELT__GQA_LISTS_MOST_SLOTS, SMELT__DERIVED,
                        "slots of a tile, at most");
        smelt__plan_add_region(plan, "SLOTS_OFFSET", warps * SMELT__GQA_LISTS_MOST_SLOTS * 8, 8,
                               "slots of a warp's tile");
    }
    smelt__plan_add(plan, "LISTS_AT_ONCE", SMELT__GQA_LISTS_AT_ONCE, SMELT__DERIVED,
                    "counters of a warp");
    smelt__plan_add_region(plan, "COUNTERS_OFFSET", rows * SMELT__GQA_LISTS_AT_ONCE * 4, 4,
                           "pairs of each list");
    return 0;
}

const struct smelt__kernel_family smelt__sparse_gqa_lists = {
    .schema = {.name = "sparse_gqa_lists",
               .summary = "for each block of keys the queries that chose it",
               SMELT__KEYS(keys)},
    /* All passes; a plan is named after its pass. */
    SMELT__VARIANTS({"lists", plan_lists}),
};
