/*
 * What the plans of the variants of indexer_bwd_main have in common; it knows none of them.
 *
 * The rule of EXACT_GROUPS. Addends to a row of dk are rounded to 2^-24 of a bound on their sum,
 * which grows with their number: for n addends of pairs of 64 heads, each a tenth of its own bound,
 * the rounding error is 3e-7 n of an addend, or 2.6e-3 if all of 8192 groups have the row. That equals
 * the error of the addends' bf16 factors. With more groups a new sum begins, which costs reading and
 * writing all rows.
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
    smelt__plan_add(plan, "RELU", relu, SMELT__FROM_SPEC,
                    "1: ReLU of the products; 0: no activation");
    smelt__plan_add(plan, "DETERMINISTIC", deterministic, SMELT__FROM_SPEC,
                    "1: addends to dk are rounded first");
    if (deterministic) {
        const int groups = smelt__spec_knob(spec, "exact_groups", EXACT_GROUPS);
        ((struct smelt__indexer_bwd_main_launch *)(void *)plan->launch)->exact_groups = groups;
        SMELT__PLAN_ADD(
            plan, spec,
            {"EXACT_GROUPS", "exact_groups", groups, "groups that are added up exactly at once"});
    }
}
