/* What the plans of the kernel family indexer_logits_fwd have in common. */
#include <stdio.h>

#include "codegen/families/indexer_keys.h"
#include "codegen/families/indexer_logits_fwd.h"
#include "codegen/plan/limits.h"

enum {
    WARPGROUP = 128,    /* threads */
    REGISTER_GRAIN = 8, /* a thread's number of registers is a multiple of it */
    MOST_REGISTERS = 232,
    OTHER_REGISTERS = 56, /* of the producer's warpgroup */
    SWIZZLE = 128,        /* bytes at most */
    ALIGNMENT = 1024,     /* the swizzle repeats every 1024 bytes */
    RUN_BYTES = 24,
    RANGE_BYTES = 8,
    BARRIER_BYTES = 8,
    COARSE = 256, /* groups of batches whose costs are kept */
    TOGETHER = 4, /* batches whose windows are loaded at once */
};

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

int smelt__indexer_logits_regions(const struct smelt__indexer_logits_block *block,
                                  struct smelt__plan *plan) {
    const int buffers = block->buffers;
    plan->region_count = 0;
    smelt__plan_add_region(plan, "QUERIES_OFFSET", buffers * block->rows * block->row_bytes,
                           ALIGNMENT, "a block's queries, in each buffer");
    smelt__plan_add_region(plan, "KEYS_OFFSET", block->stages * block->keys * block->row_bytes,
                           ALIGNMENT, "KV tiles, in each stage");
    smelt__plan_add_region(plan, "LOWEST_OFFSET", block->fill_bytes, 16,
                           "-inf, which bulk stores write");
    smelt__plan_add_region(plan, "WEIGHTS_OFFSET", buffers * block->rows * 4, 16,
                           "a block's weights, in each buffer");
    smelt__plan_add_region(plan, "WINDOWS_OFFSET", buffers * block->queries * RANGE_BYTES, 16,
                           "a block's windows, in each buffer");
    smelt__plan_add_region(plan, "RUNS_OFFSET", buffers * RUN_BYTES, 16,
                           "the CTA's KV tiles of a block of queries, in each buffer");
    smelt__plan_add_region(plan, "COSTS_OFFSET", (COARSE + 2 * 34) * 8, 16,
                           "costs of groups of batches, while the run is found");
    if (block->staging_bytes >= 0)
        smelt__plan_add_region(plan, "STAGING_OFFSET", block->staging_bytes, 16,
                               "a part's logits, which each warpgroup stores as whole lines");
    smelt__plan_add_region(plan, "BARRIERS_OFFSET", 2 * (block->stages + buffers) * BARRIER_BYTES,
                           8, "mbarriers");
    return plan->shared_bytes;
}

void smelt__indexer_logits_share(const struct smelt__arch *arch,
                                 struct smelt__indexer_logits_block *block, int most,
                                 struct smelt__plan *plan) {
    const int groups = block->groups;
    block->stages = most / groups * groups;
    while (smelt__indexer_logits_regions(block, plan) > smelt__shared_of_block(arch, 1) &&
           block->stages > groups)
        block->stages -= groups;
    const int each = smelt__registers_of_thread(arch, (groups + 1) * WARPGROUP, 1);
    const int left = each * (groups + 1) - OTHER_REGISTERS;
    block->math_registers = left / groups / REGISTER_GRAIN * REGISTER_GRAIN;
    if (block->math_registers > MOST_REGISTERS)
        block->math_registers = MOST_REGISTERS;
}

void smelt__indexer_logits_finish(const struct smelt__indexer_logits_block *block,
                                  const struct smelt__spec *spec, struct smelt__plan *plan) {
    const struct smelt__indexer_logits_launch *const launch = (const void *)plan->launch;
    SMELT__PLAN_ADD(
        plan, spec, {"COARSE", NULL, COARSE, "groups of batches whose costs are kept"},
        {"TOGETHER", NULL, TOGETHER, "batches whose windows are loaded at once"},
        {"ROW_BYTES", NULL, block->row_bytes, "bytes of a key, and of a head of a query"},
        {"SWIZZLE", NULL, block->row_bytes < SWIZZLE ? block->row_bytes : SWIZZLE,
         "bytes of a row in shared memory"},
        {"FILL_BYTES", NULL, block->fill_bytes, "bytes of -inf that one bulk store writes"},
        {"MATH_REGISTERS", NULL, block->math_registers, "registers of a thread that computes"},
        {"OTHER_REGISTERS", NULL, OTHER_REGISTERS, "registers of a thread that loads or fills"},
        {"TENSOR_MAPS", NULL, launch->tensor_maps, "1: q and k are read through tensor maps"},
        {"MAP_QUERIES", NULL, launch->map_queries, "queries of a box"},
        {"MAP_HEADS", NULL, launch->map_heads, "heads of a box, or of a pair"},
        {"MAP_PAIRS", NULL, launch->map_pairs, "pairs of heads of a box; 0: it has none"},
        {"MAP_KEYS", NULL, launch->map_keys, "keys of a box"});
    smelt__plan_set_threads(plan, (block->groups + 1) * WARPGROUP, 1);
    plan->item = "tile";
    plan->persistent = 1;
    plan->contiguous = 1;
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
