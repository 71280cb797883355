/* The kernel family indexer_loss_sum: the indexer's loss out of those of the queries. */
#include <stdio.h>

#include "codegen/families/indexer_loss.h"
#include "codegen/plan/limits.h"

enum { THREADS = 1024 /* one block: all that a multiprocessor can have under way for it */ };

static int plan_sum(const struct smelt__spec *spec, const struct smelt__arch *arch,
                    struct smelt__plan *plan, struct smelt__message *message) {
    (void)spec, (void)message; /* every architecture has it */
    smelt__plan_set_threads(plan, THREADS, 1);
    smelt__plan_add(plan, "PDL", arch->pdl, SMELT__DERIVED, "1: may be launched with PDL");
    smelt__plan_add_region(plan, "SUMS_OFFSET", THREADS / 32 * 4, 4, "each warp's sum");
    return 0;
}

const struct smelt__kernel_family smelt__indexer_loss_sum = {
    .schema = {.name = "indexer_loss_sum",
               .summary = "the indexer's loss out of those of the queries"},
    SMELT__VARIANTS({"sum", plan_sum}),
};
