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

/* A thread block of the sm90 variants. */
struct smelt__indexer_logits_block {
    int queries;        /* of a block of queries */
    int rows;           /* their heads' rows */
    int keys;           /* of a KV tile */
    int row_bytes;      /* of a row and of a key */
    int fill_bytes;     /* of the region of -inf */
    int staging_bytes;  /* of the region of staged logits; -1: there is none */
    int groups;         /* warpgroups that compute */
    int stages;         /* of the ring of KV tiles */
    int buffers;        /* each for a block of queries */
    int math_registers; /* of a thread that computes */
};

/* Replaces the plan's regions. Returns the bytes of shared memory. */
int smelt__indexer_logits_regions(const struct smelt__indexer_logits_block *block,
                                  struct smelt__plan *plan);

/* Sets stages, to as many as there is room for, at most `most`, in a multiple of the warpgroups, so that
 * the same warpgroup always uses a stage; and math_registers, to what the other warpgroup's registers
 * leave of those that the launch allocates. */
void smelt__indexer_logits_share(const struct smelt__arch *arch,
                                 struct smelt__indexer_logits_block *block, int most,
                                 struct smelt__plan *plan);

/* Sets the plan's threads and items, and adds the constants of both sm90 variants that come last in the
 * plan. plan->launch must be set. */
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
