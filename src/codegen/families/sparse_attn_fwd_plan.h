/* What the plans of the variants of sparse_attn_fwd have in common; it knows none of them. */
#pragma once

#include "codegen/plan/plan.h"
#include "codegen/spec/spec.h"

/* Values of the knob `orientation`. */
enum smelt__sparse_attn_orientation { SMELT__SPARSE_ATTN_HEADS = 0, SMELT__SPARSE_ATTN_KEYS };

/* Names the kernel of a plan whose variant is set, and adds the constants that the spec gives. */
void smelt__sparse_attn_fwd_name(const struct smelt__spec *spec, struct smelt__plan *plan);
