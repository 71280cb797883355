/* What the files of the kernel family indexer_logits_fwd share: one plan function a variant. */
#ifndef SMELT_CODEGEN_INDEXER_LOGITS_FWD_H
#define SMELT_CODEGEN_INDEXER_LOGITS_FWD_H

#include "codegen/family.h"

extern const struct smelt__family smelt__indexer_logits_fwd;

/* Sets the kernel's name and adds what every variant has: HEADS, DIM, FP8. plan->variant is set. */
void smelt__indexer_logits_fwd_name(const struct smelt__spec *spec, struct smelt__plan *plan);

/*
 * Each plans its variant or says why it cannot: 0, or -1 with the reason. Constants that the host
 * code reads (src/ops/indexer_logits.c):
 *   BLOCK_QUERIES, BLOCK_KEYS  of an item of the grid: plan->item is "tile", and a launch has
 *                              ceil(tokens / BLOCK_QUERIES) * ceil(rows / BLOCK_KEYS) of them
 *   TENSOR_MAPS                1: the params struct's maps are made, of boxes of
 *   MAP_QUERIES, MAP_HEADS, MAP_KEYS  (with TENSOR_MAPS alone; each at most 256)
 *   MAP_PAIRS                  above 0: q's boxes are of so many pairs of heads
 */
int smelt__indexer_logits_fwd_plan_sm90(const struct smelt__spec *spec,
                                        const struct smelt__arch *arch, struct smelt__plan *plan,
                                        struct smelt__message *message);
int smelt__indexer_logits_fwd_plan_mma(const struct smelt__spec *spec,
                                       const struct smelt__arch *arch, struct smelt__plan *plan,
                                       struct smelt__message *message);

#endif
