/* A context's plans, with its tuning entries. */
#pragma once

#include "codegen/family.h"
#include "smelt/context.h"

/* The plan of a kernel; arch NULL: on the context's architecture. Applies the device's tuning entry if
 * `arch` is the context's; an entry whose knobs have no plan is ignored, with a warning the first
 * time. Errors: UNSUPPORTED. */
smelt_status smelt__context_plan(const smelt_context *context, const struct smelt__spec *spec,
                                 const struct smelt__arch *arch, struct smelt__plan *plan);

/* The kernels that an operator's calls launch on the context's architecture. Errors: UNSUPPORTED if one has
 * no plan. */
smelt_status smelt__context_expand(const smelt_context *context, const struct smelt__spec *spec,
                                   struct smelt__expansion *expansion);

/* smelt__context_plan from text. Errors: INVALID_ARGUMENT, INVALID_SPEC (also for an operator),
 * UNSUPPORTED. */
smelt_status smelt__context_plan_text(const smelt_context *context, const char *kernel,
                                      const char *arch, struct smelt__plan *plan);
