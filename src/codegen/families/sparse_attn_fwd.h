/* What the files of the kernel family sparse_attn_fwd share: one plan function a variant. */
#ifndef SMELT_CODEGEN_SPARSE_ATTN_FWD_H
#define SMELT_CODEGEN_SPARSE_ATTN_FWD_H

#include "codegen/family.h"

extern const struct smelt__family smelt__sparse_attn_fwd;

/* Values of the knob `variant`. */
enum smelt__sparse_attn_variant { SMELT__SPARSE_ATTN_MMA = 0, SMELT__SPARSE_ATTN_SM90 };

/* Values of the knob `orientation`. */
enum smelt__sparse_attn_orientation { SMELT__SPARSE_ATTN_HEADS = 0, SMELT__SPARSE_ATTN_KEYS };

/* Each plans its variant or says why it cannot: 0, or -1 with the reason. */
int smelt__sparse_attn_fwd_plan_mma(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                    struct smelt__plan *plan, struct smelt__message *message);
int smelt__sparse_attn_fwd_plan_sm90(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                     struct smelt__plan *plan, struct smelt__message *message);

/* The sm90 plan with keys as rows; what both orientations refuse is refused. */
int smelt__sparse_attn_fwd_plan_keys(const struct smelt__spec *spec, struct smelt__plan *plan,
                                     struct smelt__message *message);

/* A knob's value, or what the rule says. */
int smelt__sparse_attn_fwd_knob(const struct smelt__spec *spec, const char *name, int otherwise);

/* Names the kernel of a plan whose variant is set, and adds the constants that the spec gives. */
void smelt__sparse_attn_fwd_name(const struct smelt__spec *spec, struct smelt__plan *plan);

#endif
