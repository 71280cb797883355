/* What the files of the kernel family indexer_bwd_main share, and what the operator asks of its
 * plans. */
#pragma once

#include "codegen/family.h"

extern const struct smelt__kernel_family smelt__indexer_bwd_main;

/* Queries of a group at most. */
enum { SMELT__INDEXER_BWD_MOST_GROUP = 8 };

/* What the host reads of a plan; each is a constant of the kernel, too. */
struct smelt__indexer_bwd_main_launch {
    int group_queries; /* of an item: 1, 2, 4 or 8 */
    int block_heads;   /* rows of an item: group_queries times a query's QUERY_ROWS */
    int group_tiles;   /* 2: the kernel reads lists in three parts, by halves of the members
                          (indexer_bwd_main.params.h, runs); 1: it does not */
    int tensor_maps;   /* 1: the kernel reads q_map */
    int exact_groups;  /* with deterministic=1: groups of a launch at most */
};

SMELT__PLAN_LAUNCH(smelt__indexer_bwd_main_launch)

/* Each plans its variant or says why it cannot: 0, or -1 with the reason. */
int smelt__indexer_bwd_main_plan_mma(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                     struct smelt__plan *plan, struct smelt__message *message);
int smelt__indexer_bwd_main_plan_sm90(const struct smelt__spec *spec,
                                      const struct smelt__arch *arch, struct smelt__plan *plan,
                                      struct smelt__message *message);

/* Names the kernel of a plan whose variant is set, and adds the constants that the spec gives:
 * HEADS, DIM, RELU, DETERMINISTIC; and EXACT_GROUPS. */
void smelt__indexer_bwd_main_name(const struct smelt__spec *spec, struct smelt__plan *plan);
