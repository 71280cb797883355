/* Plans as a context makes them: with its tuning entries. */
#ifndef SMELT_RUNTIME_TUNED_H
#define SMELT_RUNTIME_TUNED_H

#include "codegen/plan/plan.h"
#include "smelt/context.h"

/* The plan of a kernel in a context. Its device's tuning entry counts when `arch` is the context's;
 * one whose knobs have no plan is passed over, with a warning the first time. Errors: UNSUPPORTED.
 */
smelt_status smelt__context_plan(const smelt_context *context, const struct smelt__spec *spec,
                                 const struct smelt__arch *arch, struct smelt__plan *plan);

/* The same from texts; arch NULL: the context's. Errors: INVALID_ARGUMENT, INVALID_SPEC (also for
 * an operator), UNSUPPORTED. */
smelt_status smelt__context_plan_text(const smelt_context *context, const char *kernel,
                                      const char *arch, struct smelt__plan *plan);

#endif
