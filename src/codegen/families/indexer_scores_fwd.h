/* What the files of the kernel family indexer_scores_fwd share: one plan function a variant. */
#pragma once

#include "codegen/family.h"

extern const struct smelt__kernel_family smelt__indexer_scores_fwd;

/* Sets the kernel's name and adds what every variant has: HEADS, DIM, and BLOCK_HEADS, which are
 * the heads of each group rounded up to a multiple of 8. plan->variant is set. Returns BLOCK_HEADS. */
int smelt__indexer_scores_fwd_name(const struct smelt__spec *spec, struct smelt__plan *plan);

/* Each plans its variant or says why it cannot: 0, or -1 with the reason. An item is a query. */
int smelt__indexer_scores_fwd_plan_sm90(const struct smelt__spec *spec,
                                        const struct smelt__arch *arch, struct smelt__plan *plan,
                                        struct smelt__message *message);
int smelt__indexer_scores_fwd_plan_mma(const struct smelt__spec *spec,
                                       const struct smelt__arch *arch, struct smelt__plan *plan,
                                       struct smelt__message *message);
