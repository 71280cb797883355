/* What the plans of the kernel family indexer_scores_fwd have in common. */
#include <stdio.h>

#include "codegen/families/indexer_keys.h"
#include "codegen/families/indexer_scores_fwd.h"

int smelt__indexer_scores_fwd_name(const struct smelt__spec *spec, struct smelt__plan *plan) {
    enum { EIGHTS = 8 };
    const int heads = (int)smelt__spec_get(spec, "heads"), dim = (int)smelt__spec_get(spec, "dim");
    const int fp8 = smelt__spec_get(spec, "dtype") == SMELT__INDEXER_FP8;
    const int relu = smelt__spec_get(spec, "activation") == SMELT__INDEXER_RELU;
    const int weights = (int)smelt__spec_get(spec, "weights");
    const int windows = (int)smelt__spec_get(spec, "windows");
    const int groups = (int)smelt__spec_get(spec, "groups");
    const int granularity = (int)smelt__spec_get(spec, "granularity");
    const int block_heads = groups * ((heads / groups + EIGHTS - 1) / EIGHTS * EIGHTS);
    const int block_max = (int)smelt__spec_get(spec, "block_max");
    const int bf16 = (int)smelt__spec_get(spec, "logits");
    char in_groups[16] = "", of_rows[16] = "", of_blocks[16] = "";
    if (groups > 1)
        snprintf(in_groups, sizeof in_groups, "_g%d", groups);
    if (granularity > 1)
        snprintf(of_rows, sizeof of_rows, "_r%d", granularity);
    if (block_max > 1)
        snprintf(of_blocks, sizeof of_blocks, "_b%d", block_max);
    snprintf(plan->kernel_name, sizeof plan->kernel_name,
             "smelt_indexer_scores_fwd_%s_h%d_d%d%s%s%s%s%s%s%s%s", plan->variant, heads, dim,
             fp8 ? "_fp8" : "", in_groups, of_rows, of_blocks, windows ? "_windows" : "",
             relu ? "" : "_linear", weights ? "" : "_unweighted", bf16 ? "_to_bf16" : "");
    smelt__plan_add(plan, "HEADS", heads, SMELT__FROM_SPEC, "indexer heads");
    smelt__plan_add(plan, "DIM", dim, SMELT__FROM_SPEC, "width of a head and of a key, elements");
    smelt__plan_add(plan, "FP8", fp8, SMELT__FROM_SPEC, "1: e4m3 and scales of the keys; 0: bf16");
    smelt__plan_add(plan, "RELU", relu, SMELT__FROM_SPEC,
                    "1: ReLU of the products; 0: no activation");
    smelt__plan_add(plan, "WEIGHTS", weights, SMELT__FROM_SPEC,
                    "1: a weight a query and head; 0: scale is every head's");
    smelt__plan_add(plan, "HEAD_GROUPS", groups, SMELT__FROM_SPEC,
                    "groups of heads, each with logits of its own");
    smelt__plan_add(plan, "GRANULARITY", granularity, SMELT__FROM_SPEC,
                    "rows, and slots, of an entry of a list");
    smelt__plan_add(plan, "BLOCK_MAX", block_max, SMELT__FROM_SPEC,
                    "slots of a block, whose largest logit is written");
    smelt__plan_add(plan, "LOGITS_BF16", bf16, SMELT__FROM_SPEC,
                    "1: logits are written as bf16, 0: as fp32");
    smelt__plan_add(plan, "WINDOWS", windows, SMELT__FROM_SPEC,
                    "1: rows outside a query's window are masked");
    smelt__plan_add(plan, "BLOCK_HEADS", block_heads, SMELT__DERIVED,
                    "heads, of each group rounded up to a multiple of 8");
    return block_heads;
}
