/* What the files of the kernel family sparse_scores_fwd share: one plan function a variant. */
#pragma once

#include "codegen/families/sparse_attn_keys.h"
#include "codegen/family.h"

extern const struct smelt__kernel_family smelt__sparse_scores_fwd;

/* Each plans its variant or says why it cannot: 0, or -1 with the reason. */
int smelt__sparse_scores_fwd_plan_mma(const struct smelt__spec *spec,
                                      const struct smelt__arch *arch, struct smelt__plan *plan,
                                      struct smelt__message *message);
int smelt__sparse_scores_fwd_plan_sm90(const struct smelt__spec *spec,
                                       const struct smelt__arch *arch, struct smelt__plan *plan,
                                       struct smelt__message *message);

/* Names the kernel of a plan whose variant is set, and adds the constants of every variant. */
static inline void smelt__sparse_scores_fwd_name(const struct smelt__spec *spec,
                                                 struct smelt__plan *plan) {
    smelt__sparse_attn_name(spec, plan);
    smelt__plan_add(plan, "HEAD_BLOCKS", 1, SMELT__DERIVED, "items of a query");
    smelt__plan_add(plan, "QUERIES_AHEAD", 32, SMELT__DERIVED,
                    "entries of a query list that a warp holds");
    smelt__plan_add(plan, "PDL", plan->arch->pdl, SMELT__DERIVED,
                    "1: has programmatic dependent launch");
}
