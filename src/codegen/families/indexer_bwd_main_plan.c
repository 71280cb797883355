/*
 * What the plans of the variants of indexer_bwd_main have in common; it knows none of them.
 *
 * The rule of EXACT_GROUPS. What is added to a row of dk is rounded to 2^-24 of the bound of all of
 * it, which grows with the number of addends: of n in pairs of 64 heads, each a tenth of its own
 * bound, rounding is 3e-7 n of an addend, 2.6e-3 where all of 8192 groups have the row. That is as
 * much as bf16 costs, whose factors an addend is made of. With more groups sums begin anew, which
 * costs reading and writing them all.
 */
#include <stdio.h>

#include "codegen/families/indexer_bwd_main.h"
#include "codegen/families/indexer_keys.h"

enum { EXACT_GROUPS = 8192 };

void smelt__indexer_bwd_main_name(const struct smelt__spec *spec, struct smelt__plan *plan) {
    const int heads = (int)smelt__spec_get(spec, "heads"), dim = (int)smelt__spec_get(spec, "dim");
    const int deterministic = (int)smelt__spec_get(spec, "deterministic");
    const int relu = smelt__spec_get(spec, "activation") == SMELT__INDEXER_RELU;
    snprintf(plan->kernel_name, sizeof plan->kernel_name, "smelt_indexer_bwd_%s_h%d_d%d%s%s",
             plan->variant, heads, dim, relu ? "" : "_linear", deterministic ? "_det" : "");
    smelt__plan_add(plan, "HEADS", heads, SMELT__FROM_SPEC, "indexer heads");
    smelt__plan_add(plan, "DIM", dim, SMELT__FROM_SPEC, "width of a head and of a key, elements");
    smelt__plan_add(plan, "RELU", relu, SMELT__FROM_SPEC, "1: of products; 0: no activation");
    smelt__plan_add(plan, "DETERMINISTIC", deterministic, SMELT__FROM_SPEC,
                    "1: addends to dk are rounded first");
    if (deterministic) {
        const int groups = smelt__spec_knob(spec, "exact_groups", EXACT_GROUPS);
        ((struct smelt__indexer_bwd_main_launch *)(void *)plan->launch)->exact_groups = groups;
        const struct smelt__plan_row exact = {"EXACT_GROUPS", "exact_groups", groups,
                                              "groups that are added up exactly at once"};
        smelt__plan_add_rows(plan, spec, &exact, 1);
    }
}
