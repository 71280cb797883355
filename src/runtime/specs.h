/* From a spec's text to a plan, with statuses and messages. */
#ifndef SMELT_RUNTIME_SPECS_H
#define SMELT_RUNTIME_SPECS_H

#include "codegen/plan.h"
#include "smelt/status.h"

/* The plan of a kernel spec on an architecture. Errors: INVALID_ARGUMENT (NULL), INVALID_SPEC (also
 * for an operator and an unknown architecture), UNSUPPORTED with the reason. */
smelt_status smelt__plan_from_text(const char *kernel, const char *arch, struct smelt__plan *plan);

#endif
