/*
 * The widths of sparse attention's kernels in variant mma. Rows of tiles are whole groups of 64 columns,
 * within which the swizzle works: dqk and dv are rounded up, and the further columns are zeros.
 */
#pragma once

#include "codegen/plan/plan.h"
#include "codegen/spec/spec.h"

/* The columns of a tile for the width with that key, "dqk" or "dv". */
int smelt__sparse_attn_columns(const struct smelt__spec *spec, const char *key);

/* Adds both as constants. */
void smelt__sparse_attn_add_columns(const struct smelt__spec *spec, struct smelt__plan *plan);

/* Whether there is a plan for a spec. */
typedef int smelt__sparse_attn_fits(const struct smelt__spec *spec, const struct smelt__arch *arch);

/* For a spec that has no plan: if it has none without its knobs either, its widths are at fault: -1,
 * with a message that names widths that fit. Else 0. */
int smelt__sparse_attn_refuse_widths(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                     smelt__sparse_attn_fits *fits, struct smelt__message *message);
