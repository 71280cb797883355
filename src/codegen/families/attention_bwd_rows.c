/* The kernel family attention_bwd_rows: the statistics of the rows for the backward pass, which are
 * the softmax base and delta. */
#include <stdio.h>

#include "codegen/families/attention.h"
#include "codegen/families/sparse_attn_keys.h"
#include "codegen/plan/limits.h"

enum {
    THREADS = 256,
    BLOCKS = 2 /* of a multiprocessor: bound by memory, so that many loads are under way */
};

static const struct smelt__key keys[] = {
    {SMELT__DIVIDED("heads", "query heads on this rank"), SMELT__RANGE(1, 1024)},
    SMELT__SPARSE_ATTN_DV,
};

static int plan_rows(const struct smelt__spec *spec, const struct smelt__arch *arch,
                     struct smelt__plan *plan, struct smelt__message *message) {
    const int most = arch->threads_per_multiprocessor / THREADS;
    (void)message; /* every architecture has it */
    smelt__plan_set_threads(plan, THREADS, most < BLOCKS ? most : BLOCKS);
    snprintf(plan->kernel_name, sizeof plan->kernel_name, "smelt_attention_bwd_rows_h%d_v%d",
             (int)smelt__spec_get(spec, "heads"), (int)smelt__spec_get(spec, "dv"));
    smelt__plan_add(plan, "HEADS", (int)smelt__spec_get(spec, "heads"), SMELT__FROM_SPEC,
                    "query heads");
    smelt__plan_add(plan, "DV", (int)smelt__spec_get(spec, "dv"), SMELT__FROM_SPEC,
                    "width of a value, elements");
    smelt__plan_add(plan, "PDL", arch->pdl, SMELT__DERIVED, "1: is launched with PDL");
    smelt__plan_add(plan, "ENTRIES", SMELT__ATTENTION_BWD_ROWS_ENTRIES, SMELT__DERIVED,
                    "queries of a thread block");
    return 0;
}

const struct smelt__kernel_family smelt__attention_bwd_rows = {
    .schema = {.name = "attention_bwd_rows",
               .summary = "statistics of the rows for the backward pass: softmax base and delta",
               SMELT__KEYS(keys)},
    SMELT__VARIANTS({"rows", plan_rows}),
};
