/* What the plans of the kernel family indexer_scores_fwd have in common. */
#include <stdio.h>

#include "codegen/families/indexer_scores_fwd.h"

int smelt__indexer_scores_fwd_name(const struct smelt__spec *spec, struct smelt__plan *plan) {
    enum { EIGHTS = 8 };
    const int heads = (int)smelt__spec_get(spec, "heads"), dim = (int)smelt__spec_get(spec, "dim");
    const int block_heads = (heads + EIGHTS - 1) / EIGHTS * EIGHTS;
    snprintf(plan->kernel_name, sizeof plan->kernel_name, "smelt_indexer_scores_fwd_%s_h%d_d%d",
             plan->variant, heads, dim);
    smelt__plan_add(plan, "HEADS", heads, SMELT__FROM_SPEC, "indexer heads");
    smelt__plan_add(plan, "DIM", dim, SMELT__FROM_SPEC, "width of a head and of a key, elements");
    smelt__plan_add(plan, "BLOCK_HEADS", block_heads, SMELT__DERIVED, "heads, in eights");
    return block_heads;
}
