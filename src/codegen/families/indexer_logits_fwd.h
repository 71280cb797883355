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
