/* What the files of the kernel family sparse_attn_fwd share: one plan function a variant. */
#pragma once

#include "codegen/families/sparse_attn_keys.h"
#include "codegen/family.h"

extern const struct smelt__kernel_family smelt__sparse_attn_fwd;

/* Each plans its variant or says why it cannot: 0, or -1 with the reason. */
int smelt__sparse_attn_fwd_plan_mma(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                    struct smelt__plan *plan, struct smelt__message *message);
int smelt__sparse_attn_fwd_plan_sm90(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                     struct smelt__plan *plan, struct smelt__message *message);

/* The sm90 plan with keys as rows; what both orientations refuse is refused. */
int smelt__sparse_attn_fwd_plan_keys(const struct smelt__spec *spec, struct smelt__plan *plan,
                                     struct smelt__message *message);
