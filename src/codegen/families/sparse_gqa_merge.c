/* The kernel family sparse_gqa_merge: combines the partial results of the block-stationary forward
 * kernel of sparse_gqa. */
#include <stddef.h>

#include "codegen/families/sparse_gqa.h"
#include "codegen/families/sparse_gqa_block.h"
#include "codegen/families/sparse_gqa_keys.h"
#include "codegen/plan/limits.h"

enum {
    THREADS = 256,
    WIDE = 128,      /* dv up to which a thread's sums leave registers for */
    BLOCKS = 2,      /* of a multiprocessor: bound by memory */
    BLOCKS_WIDE = 1, /* else */
};

static const struct smelt__key keys[] = {
    SMELT__SPARSE_GQA_SHAPE,
    SMELT__SPARSE_GQA_SINK,
    SMELT__SPARSE_GQA_UNITE_KEY,
};

int smelt__sparse_gqa_merge_plan(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                 struct smelt__plan *plan, struct smelt__message *message) {
    const int dv = (int)smelt__spec_get(spec, "dv");
    const int unites =
        smelt__spec_key(spec->schema, "unite") >= 0 && smelt__spec_get(spec, "unite");
    (void)arch, (void)message; /* every architecture has it */
    plan->template_name = "sparse_gqa_merge.cu";
    smelt__sparse_gqa_name(spec, plan);
    smelt__sparse_gqa_block_constants(spec, plan);
    smelt__plan_add(plan, "COLUMNS", dv, SMELT__DERIVED, "of a partial result");
    smelt__plan_add(plan, "HAS_SINK", (int)smelt__spec_get(spec, "sink"), SMELT__FROM_SPEC,
                    "1: a logit per head in the denominator");
    smelt__plan_add(plan, "UNITES", unites, SMELT__FROM_SPEC, "1: lists may be united");
    smelt__plan_set_threads(plan, THREADS, dv <= WIDE ? BLOCKS : BLOCKS_WIDE);
    plan->persistent = 1;
    return 0;
}

const struct smelt__kernel_family smelt__sparse_gqa_merge = {
    .schema = {.name = "sparse_gqa_merge",
               .summary = "combines sparse_gqa's partial results of blocks of keys",
               SMELT__KEYS(keys),
               .check = smelt__sparse_gqa_check},
    SMELT__VARIANTS({"merge", smelt__sparse_gqa_merge_plan}),
};
