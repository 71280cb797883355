/* What the plans of the variants of sparse_scores_fwd have in common; it knows none of them. */
#pragma once

#include "codegen/plan/plan.h"
#include "codegen/spec/spec.h"

/* Values of the knob `orientation`. */
enum smelt__sparse_scores_orientation { SMELT__SPARSE_SCORES_HEADS = 0, SMELT__SPARSE_SCORES_KEYS };

/* Names the kernel of a plan whose variant is set, and adds the constants that the spec gives and
 * those of every variant. */
void smelt__sparse_scores_fwd_name(const struct smelt__spec *spec, struct smelt__plan *plan);
