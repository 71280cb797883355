/* What the plans of the kernel family indexer_logits_fwd have in common. */
#include <stdio.h>

#include "codegen/families/indexer_keys.h"
#include "codegen/families/indexer_logits_fwd.h"

void smelt__indexer_logits_fwd_name(const struct smelt__spec *spec, struct smelt__plan *plan) {
    const int heads = (int)smelt__spec_get(spec, "heads"), dim = (int)smelt__spec_get(spec, "dim");
    const int fp8 = smelt__spec_get(spec, "dtype") == SMELT__INDEXER_FP8;
    const int relu = smelt__spec_get(spec, "activation") == SMELT__INDEXER_RELU;
    const int weights = (int)smelt__spec_get(spec, "weights");
    const int groups = (int)smelt__spec_get(spec, "groups");
    const int block_max = (int)smelt__spec_get(spec, "block_max");
    const int bf16 = (int)smelt__spec_get(spec, "logits");
    char in_groups[16] = "", of_blocks[16] = "";
    if (groups > 1)
        snprintf(in_groups, sizeof in_groups, "_g%d", groups);
    if (block_max > 1)
        snprintf(of_blocks, sizeof of_blocks, "_b%d", block_max);
    snprintf(plan->kernel_name, sizeof plan->kernel_name,
             "smelt_indexer_logits_fwd_%s_h%d_d%d_%s%s%s%s%s%s", plan->variant, heads, dim,
             fp8 ? "fp8" : "bf16", in_groups, of_blocks, relu ? "" : "_linear",
             weights ? "" : "_unweighted", bf16 ? "_to_bf16" : "");
    smelt__plan_add(plan, "HEADS", heads, SMELT__FROM_SPEC, "indexer heads");
    smelt__plan_add(plan, "DIM", dim, SMELT__FROM_SPEC, "width of a head and of a key, elements");
    smelt__plan_add(plan, "RELU", relu, SMELT__FROM_SPEC,
                    "1: ReLU of the products; 0: no activation");
    smelt__plan_add(plan, "WEIGHTS", weights, SMELT__FROM_SPEC,
                    "1: a weight a query and head; 0: scale is every head's");
    smelt__plan_add(plan, "HEAD_GROUPS", groups, SMELT__FROM_SPEC,
                    "groups of heads, each with logits of its own");
    smelt__plan_add(plan, "BLOCK_MAX", block_max, SMELT__FROM_SPEC,
                    "keys of a block, whose largest logit is written");
    smelt__plan_add(plan, "LOGITS_BF16", bf16, SMELT__FROM_SPEC,
                    "1: logits are written as bf16, 0: as fp32");
    smelt__plan_add(plan, "FP8", fp8, SMELT__FROM_SPEC, "1: e4m3 and scales of the keys; 0: bf16");
}

void smelt__indexer_logits_expand(struct smelt__expansion *expansion,
                                  const struct smelt__spec *spec, int all, int listed,
                                  unsigned pass) {
    const int64_t block = smelt__spec_get(spec, "candidate_block");
    if (block <= 0) {
        smelt__expansion_add(expansion, spec, all, pass);
        return;
    }
    struct smelt__spec *const kernel = smelt__expansion_add(expansion, spec, listed, pass);
    smelt__spec_set(kernel, "granularity", block);
    smelt__spec_set(kernel, "windows", 1);
}
