/* The kernel family key_grads_finish: a gradient by keys from its fp32 sums, and dsink. */
#include "codegen/families/key_grads_finish.h"

#include <stdio.h>

#include "codegen/families/sparse_attn_keys.h"
#include "codegen/plan/limits.h"

enum {
    THREADS = 256,
    BLOCKS = 6, /* of a multiprocessor: bound by memory, so that many loads are under way */
    /* From this major capability on, the compiler needs more than the 40 registers that six blocks
     * leave. */
    FEWER_BLOCKS_FROM = 12
};

static const struct smelt__key keys[] = {
    {SMELT__REQUIRED("dqk", "width of a row"), SMELT__ATTN_WIDTHS},
};

static int plan_finish(const struct smelt__spec *spec, const struct smelt__arch *arch,
                       struct smelt__plan *plan, struct smelt__message *message) {
    const int most = arch->threads_per_multiprocessor / THREADS;
    const int wanted = arch->capability_major >= FEWER_BLOCKS_FROM ? BLOCKS - 1 : BLOCKS;
    (void)message; /* every architecture has it */
    smelt__plan_set_threads(plan, THREADS, most < wanted ? most : wanted);
    snprintf(plan->kernel_name, sizeof plan->kernel_name, "smelt_key_grads_finish_qk%d",
             (int)smelt__spec_get(spec, "dqk"));
    smelt__plan_add(plan, "DQK", (int)smelt__spec_get(spec, "dqk"), SMELT__FROM_SPEC,
                    "width of a KV row, elements");
    smelt__plan_add(plan, "PDL", arch->pdl, SMELT__DERIVED, "1: is launched with PDL");
    return 0;
}

const struct smelt__kernel_family smelt__key_grads_finish = {
    .schema = {.name = "key_grads_finish",
               .summary = "gradients by keys from their sums, and dsink",
               SMELT__KEYS(keys)},
    SMELT__VARIANTS({"finish", plan_finish}),
};
