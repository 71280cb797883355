/* What the plans of the kernel family indexer_logits_fwd have in common. */
#include <stdio.h>

#include "codegen/families/indexer_keys.h"
#include "codegen/families/indexer_logits_fwd.h"

void smelt__indexer_logits_fwd_name(const struct smelt__spec *spec, struct smelt__plan *plan) {
    const int heads = (int)smelt__spec_get(spec, "heads"), dim = (int)smelt__spec_get(spec, "dim");
    const int fp8 = smelt__spec_get(spec, "dtype") == SMELT__INDEXER_FP8;
    snprintf(plan->kernel_name, sizeof plan->kernel_name, "smelt_indexer_logits_fwd_%s_h%d_d%d_%s",
             plan->variant, heads, dim, fp8 ? "fp8" : "bf16");
    smelt__plan_add(plan, "HEADS", heads, SMELT__FROM_SPEC, "indexer heads");
    smelt__plan_add(plan, "DIM", dim, SMELT__FROM_SPEC, "width of a head and of a key, elements");
    smelt__plan_add(plan, "FP8", fp8, SMELT__FROM_SPEC, "1: e4m3 and scales of the keys; 0: bf16");
}
