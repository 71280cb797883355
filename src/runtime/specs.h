/* From a spec's text to a plan, with statuses and messages. */
#pragma once

#include "codegen/plan/plan.h"
#include "codegen/template/engine.h"
#include "codegen/text.h"
#include "runtime/cache/cache.h"
#include "smelt/kernels.h"
#include "smelt/status.h"

/* Parses a spec. Errors: INVALID_ARGUMENT (NULL), INVALID_SPEC. */
smelt_status smelt__spec_from_text(const char *text, struct smelt__spec *spec);

/* Passes the specs' texts to the caller's function. Errors: CANCELLED if it ends the enumeration. */
smelt_status smelt__specs_give(const struct smelt__spec *specs, int count, smelt_text_function each,
                               void *user);

/* Parses a kernel's spec and architecture. Errors: INVALID_ARGUMENT (NULL), INVALID_SPEC (also for
 * an operator and an unknown architecture). */
smelt_status smelt__kernel_from_text(const char *kernel, const char *arch_name,
                                     struct smelt__spec *spec, const struct smelt__arch **arch);

/* Appends a plan's source to an empty text, which the caller frees, also after an error.
 * `templates`: NULL for the library's own. Errors: OUT_OF_MEMORY; INTERNAL for a fault in a
 * template. */
smelt_status smelt__plan_emit(const struct smelt__plan *plan,
                              const struct smelt__template_table *templates,
                              struct smelt__text *source);

/* The cache's key of a plan's source, compiled with these options (NULL-terminated) to this kind of
 * output. The source is not written for it: engine.h, smelt__source_identify. Errors as above. */
smelt_status smelt__plan_key(const struct smelt__plan *plan,
                             const struct smelt__template_table *templates,
                             const char *const *options, enum smelt__output output,
                             struct smelt__cache_key *key);

/* A plan as text or JSON, and its source; the caller frees both. Errors: OUT_OF_MEMORY. */
smelt_status smelt__plan_text(const struct smelt__plan *plan, int json, char **text);
smelt_status smelt__plan_source(const struct smelt__plan *plan,
                                const struct smelt__template_table *templates, char **source);

/* The plan of a kernel spec on an architecture, without tuning entries. Errors: INVALID_ARGUMENT
 * (NULL), INVALID_SPEC (also for an operator and an unknown architecture), UNSUPPORTED with the
 * reason. */
smelt_status smelt__plan_from_text(const char *kernel, const char *arch, struct smelt__plan *plan);
