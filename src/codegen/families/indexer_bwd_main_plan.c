/* What the plans of the variants of indexer_bwd_main have in common; it knows none of them. */
#include <stdio.h>

#include "codegen/families/indexer_bwd_main.h"

void smelt__indexer_bwd_main_name(const struct smelt__spec *spec, struct smelt__plan *plan) {
    const int heads = (int)smelt__spec_get(spec, "heads"), dim = (int)smelt__spec_get(spec, "dim");
    const int deterministic = (int)smelt__spec_get(spec, "deterministic");
    snprintf(plan->kernel_name, sizeof plan->kernel_name, "smelt_indexer_bwd_%s_h%d_d%d%s",
             plan->variant, heads, dim, deterministic ? "_det" : "");
    smelt__plan_add(plan, "HEADS", heads, SMELT__FROM_SPEC, "indexer heads");
    smelt__plan_add(plan, "DIM", dim, SMELT__FROM_SPEC, "width of a head and of a key, elements");
    smelt__plan_add(plan, "DETERMINISTIC", deterministic, SMELT__FROM_SPEC,
                    "1: what is added to dk is rounded before");
}
