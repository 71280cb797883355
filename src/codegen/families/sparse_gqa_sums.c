/* The kernel family sparse_gqa_sums: adds the partial results of the block-stationary backward kernel
 * of sparse_gqa, in a fixed order. */
#include <stddef.h>

#include "codegen/families/sparse_gqa.h"
#include "codegen/families/sparse_gqa_block.h"
#include "codegen/families/sparse_gqa_keys.h"
#include "codegen/plan/limits.h"

enum {
    QUERY_THREADS = 256,
    KEY_THREADS = 128, /* of a warpgroup of the other kernel */
    WIDE = 128,        /* dqk up to which a thread's sums leave room for */
    BLOCKS = 2,        /* of a multiprocessor: bound by memory */
    KEY_BLOCKS = 8,
    BLOCKS_WIDE = 1, /* else */
};

static const struct smelt__key keys[] = {
    {SMELT__REQUIRED("pass", "queries: dq from partial results of blocks; keys: dk and dv from "
                             "those of queries"),
     SMELT__NAMES_2(queries, keys)},
    SMELT__SPARSE_GQA_SHAPE,
};

static int plan_sums(const struct smelt__spec *spec, const struct smelt__arch *arch,
                     struct smelt__plan *plan, struct smelt__message *message) {
    const int of_keys = smelt__spec_get(spec, "pass") == SMELT__GQA_SUMS_KEYS;
    const int dqk = (int)smelt__spec_get(spec, "dqk");
    (void)arch, (void)message; /* every architecture has both */
    plan->variant = smelt__spec_choice(spec, "pass");
    plan->template_name = of_keys ? "sparse_gqa_sums.keys.cu" : "sparse_gqa_sums.queries.cu";
    smelt__sparse_gqa_name(spec, plan);
    smelt__sparse_gqa_block_constants(spec, plan);
    smelt__plan_add(plan, "COLUMNS", dqk, SMELT__DERIVED, "of a partial result of a query");
    smelt__plan_add(plan, "BLOCK_KEYS", (int)smelt__spec_get(spec, "granularity"), SMELT__DERIVED,
                    "keys of a block");
    smelt__plan_set_threads(plan, of_keys ? KEY_THREADS : QUERY_THREADS,
                            of_keys       ? KEY_BLOCKS
                            : dqk <= WIDE ? BLOCKS
                                          : BLOCKS_WIDE);
    plan->persistent = !of_keys;
    return 0;
}

const struct smelt__kernel_family smelt__sparse_gqa_sums = {
    .schema = {.name = "sparse_gqa_sums",
               .summary = "adds partial gradients of sparse_gqa",
               SMELT__KEYS(keys),
               .check = smelt__sparse_gqa_check},
    /* Both passes; a plan is named after its pass. */
    SMELT__VARIANTS({"sums", plan_sums}),
};
