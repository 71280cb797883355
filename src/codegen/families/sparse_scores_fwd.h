/* What the files of the kernel family sparse_scores_fwd share: one plan function a variant. */
#pragma once

#include "codegen/families/sparse_scores_fwd_plan.h"
#include "codegen/family.h"

extern const struct smelt__kernel_family smelt__sparse_scores_fwd;

/* Each plans its variant or says why it cannot: 0, or -1 with the reason. */
int smelt__sparse_scores_fwd_plan_mma(const struct smelt__spec *spec,
                                      const struct smelt__arch *arch, struct smelt__plan *plan,
                                      struct smelt__message *message);
int smelt__sparse_scores_fwd_plan_sm90(const struct smelt__spec *spec,
                                       const struct smelt__arch *arch, struct smelt__plan *plan,
                                       struct smelt__message *message);
