/* What the files of the kernel family indexer_logits_fwd share: one plan function a variant. */
#pragma once

#include "codegen/family.h"

extern const struct smelt__kernel_family smelt__indexer_logits_fwd;

/* Adds the kernel of an operator's logits: member `all`, of this family, or with candidate_block
 * member `listed`, of the family indexer_scores_fwd. */
void smelt__indexer_logits_expand(struct smelt__expansion *expansion,
                                  const struct smelt__spec *spec, int all, int listed,
                                  unsigned pass);

/* Sets the kernel's name and adds what every variant has: HEADS, DIM, FP8. plan->variant is set. */
void smelt__indexer_logits_fwd_name(const struct smelt__spec *spec, struct smelt__plan *plan);

/* What the host reads of a plan; each is a constant of the kernel, too. */
struct smelt__indexer_logits_launch {
    /* Of an item of the grid, a "tile": a launch has ceil(tokens / block_queries) *
     * ceil(rows / block_keys) of them. */
    int block_queries, block_keys;
    int tensor_maps;                      /* 1: the params struct's maps are made, with boxes of */
    int map_queries, map_heads, map_keys; /* each at most 256 */
    int map_pairs;                        /* above 0: a box of q holds this many pairs of heads */
};

SMELT__PLAN_LAUNCH(smelt__indexer_logits_launch)

/* What a block of the sm90 variants has: a ring of KV tiles, buffers of queries, and warpgroups. */
struct smelt__indexer_logits_block {
    int queries, rows, keys, row_bytes; /* queries; with their heads; of a KV tile; of each */
    int fill_bytes, staging_bytes;      /* of -inf; of staged logits, -1: has no such region */
    int groups, stages, buffers, math_registers;
};

/* Places the regions anew: bytes of shared memory. */
int smelt__indexer_logits_regions(const struct smelt__indexer_logits_block *block,
                                  struct smelt__plan *plan);

/* As many stages as there is room for, up to `most`: a multiple of the warpgroups, so that each is
 * always the same one's. Then math_registers, the math's share of what the launch gives threads. */
void smelt__indexer_logits_share(const struct smelt__arch *arch,
                                 struct smelt__indexer_logits_block *block, int most,
                                 struct smelt__plan *plan);

/* Sets threads and items and adds the last constants, which both sm90 variants have; plan->launch is
 * set. */
void smelt__indexer_logits_finish(const struct smelt__indexer_logits_block *block,
                                  const struct smelt__spec *spec, struct smelt__plan *plan);

/* Each plans its variant or says why it cannot: 0, or -1 with the reason. */
int smelt__indexer_logits_fwd_plan_sm90(const struct smelt__spec *spec,
                                        const struct smelt__arch *arch, struct smelt__plan *plan,
                                        struct smelt__message *message);
int smelt__indexer_logits_fwd_plan_sm90_heads(const struct smelt__spec *spec,
                                              const struct smelt__arch *arch,
                                              struct smelt__plan *plan,
                                              struct smelt__message *message);
int smelt__indexer_logits_fwd_plan_mma(const struct smelt__spec *spec,
                                       const struct smelt__arch *arch, struct smelt__plan *plan,
                                       struct smelt__message *message);
