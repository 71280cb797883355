/* Tuned plans, and the public calls on tuning entries: see tuned.h, smelt/tuning.h. */
#include <stdio.h>
#include <string.h>

#include "codegen/candidates.h"
#include "codegen/family.h"
#include "runtime/abi.h"
#include "runtime/context.h"
#include "runtime/specs.h"
#include "runtime/tuning/tuned.h"
#include "smelt/kernels.h"

/* ---- plans ----------------------------------------------------------------------------------- */

static int find_line(const smelt_context *context, const struct smelt__spec *spec,
                     struct smelt__tuning_line *line) {
    struct smelt__spec stripped;
    char text[SMELT__SPEC_TEXT];
    smelt__spec_strip_knobs(spec, &stripped);
    smelt__spec_print(&stripped, text);
    return smelt__tuning_find(context->tuning, text, context->device_name, line);
}

/* Knobs given in the spec may be incompatible with the entry's, which is no fault of either. */
static void complain(const smelt_context *context, const struct smelt__spec *spec,
                     const struct smelt__tuning_line *line, const char *reason) {
    char asked[SMELT__SPEC_TEXT];
    smelt__spec_print(spec, asked);
    const int own_knobs = strcmp(asked, line->spec) != 0;
    const int first = !own_knobs && smelt__tuning_first_complaint(context->tuning, line);
    smelt__log_write(&context->settings.log,
                     first       ? SMELT_LOG_WARNING
                     : own_knobs ? SMELT_LOG_INFO
                                 : SMELT_LOG_DEBUG,
                     "tuning: the entry of %s on %s is ignored, its knobs %s have no plan: %s",
                     asked, line->device, line->knobs, reason);
}

smelt_status smelt__context_plan(const smelt_context *context, const struct smelt__spec *spec,
                                 const struct smelt__arch *arch, struct smelt__plan *plan) {
    struct smelt__tuning_line line;
    struct smelt__message message;

    smelt_status status = smelt__context_check_process(context);
    if (status)
        return status;
    if (!arch)
        arch = context->arch;
    if (arch == context->arch && find_line(context, spec, &line)) {
        if (smelt__plan_make_tuned(spec, arch, line.knobs, plan, &message) == 0)
            return SMELT_OK;
        complain(context, spec, &line, message.text);
    }
    if (smelt__plan_make(spec, arch, plan, &message))
        return smelt__fail(SMELT_ERROR_UNSUPPORTED, "%s", message.text);
    return SMELT_OK;
}

/* The argument of plan_one. Without a context no tuning entries apply. */
struct planner {
    const smelt_context *context;
    const struct smelt__arch *arch;
};

static int plan_one(void *user, const struct smelt__spec *spec, struct smelt__plan *plan) {
    const struct planner *const planner = user;
    struct smelt__message message;
    if (planner->context)
        return (int)smelt__context_plan(planner->context, spec, planner->arch, plan);
    return smelt__plan_make(spec, planner->arch, plan, &message)
               ? (int)smelt__fail(SMELT_ERROR_UNSUPPORTED, "%s", message.text)
               : 0;
}

/* With neither a context nor an architecture it keeps the kernels of all architectures. */
static smelt_status expand(const smelt_context *context, const struct smelt__spec *spec,
                           const struct smelt__arch *arch, struct smelt__expansion *expansion) {
    struct planner planner = {context, arch};
    struct smelt__message message;
    if (smelt__spec_expand(spec, expansion, &message))
        return smelt__fail(SMELT_ERROR_UNSUPPORTED, "%s", message.text);
    return context || arch ? (smelt_status)smelt__expansion_plan(expansion, plan_one, &planner)
                           : SMELT_OK;
}

smelt_status smelt__context_expand(const smelt_context *context, const struct smelt__spec *spec,
                                   struct smelt__expansion *expansion) {
    return expand(context, spec, NULL, expansion);
}

smelt_status smelt_spec_expand(const smelt_context *context, const char *text, const char *arch,
                               smelt_text_function each, void *user) {
    struct smelt__spec spec;
    struct smelt__message message;
    struct smelt__expansion expansion;
    if (!each)
        return smelt__fail_null("each");
    smelt_status status = smelt__spec_from_text(text, &spec);
    const struct smelt__arch *const found = arch ? smelt__arch_find(arch, &message) : NULL;
    if (!status && arch && !found)
        status = smelt__fail(SMELT_ERROR_INVALID_SPEC, "%s", message.text);
    if (!status)
        status = expand(context, &spec, found, &expansion);
    return status ? status : smelt__specs_give(expansion.kernels, expansion.count, each, user);
}

smelt_status smelt__context_plan_text(const smelt_context *context, const char *kernel,
                                      const char *arch, struct smelt__plan *plan) {
    struct smelt__spec spec;
    const struct smelt__arch *found;
    smelt_status status =
        smelt__kernel_from_text(kernel, arch ? arch : context->arch->name, &spec, &found);
    return status ? status : smelt__context_plan(context, &spec, found, plan);
}

static smelt_status need(const void *argument, const char *name) {
    return argument ? SMELT_OK : smelt__fail_null(name);
}

/* Makes the plan for smelt_kernel_plan and smelt_kernel_source; sets their result *out to NULL. */
static smelt_status plan_for(const smelt_context *context, const char *kernel, const char *arch,
                             char **out, struct smelt__plan *plan) {
    if (need(out, "the result"))
        return SMELT_ERROR_INVALID_ARGUMENT;
    *out = NULL;
    return context ? smelt__context_plan_text(context, kernel, arch, plan)
                   : smelt__plan_from_text(kernel, arch, plan);
}

smelt_status smelt_kernel_plan(const smelt_context *context, const char *kernel, const char *arch,
                               int json, char **text) {
    struct smelt__plan plan;
    const smelt_status status = plan_for(context, kernel, arch, text, &plan);
    return status ? status : smelt__plan_text(&plan, json, text);
}

smelt_status smelt_kernel_source(const smelt_context *context, const char *kernel, const char *arch,
                                 char **source) {
    struct smelt__plan plan;
    const smelt_status status = plan_for(context, kernel, arch, source, &plan);
    return status ? status : smelt__plan_source(&plan, context ? context->templates : NULL, source);
}

/* ---- entries --------------------------------------------------------------------------------- */

/* A kernel's spec as entries name it: canonical, without knobs. */
static smelt_status strip(const char *kernel, struct smelt__spec *stripped,
                          char text[SMELT__SPEC_TEXT]) {
    struct smelt__spec spec;
    const struct smelt__arch *ignored;
    smelt_status status = smelt__kernel_from_text(kernel, smelt__arch_at(0)->name, &spec, &ignored);
    if (status)
        return status;
    smelt__spec_strip_knobs(&spec, stripped);
    smelt__spec_print(stripped, text);
    return SMELT_OK;
}

static const struct smelt__struct *about_entry(void) {
    static const struct smelt__struct about =
        SMELT__STRUCT_VALUE(smelt_tuning_entry, "entry", "SMELT_TUNING_ENTRY_INIT", microseconds);
    return &about;
}

smelt_status smelt_tuning_get_entry(const smelt_context *context, const char *kernel,
                                    smelt_tuning_entry *entry) {
    struct smelt__tuning_line line = {0};
    struct smelt__spec stripped;
    char text[SMELT__SPEC_TEXT];

    if (need(context, "context") || smelt__struct_check(about_entry(), entry))
        return SMELT_ERROR_INVALID_ARGUMENT;
    smelt_status status = smelt__context_check_process(context);
    if (!status)
        status = strip(kernel, &stripped, text);
    if (status)
        return status;
    smelt__tuning_find(context->tuning, text, context->device_name, &line);
    const smelt_tuning_entry found = {.spec = smelt__strings_keep(context->strings, text),
                                      .device = context->device_name,
                                      .knobs = smelt__strings_keep(context->strings, line.knobs),
                                      .microseconds = line.microseconds};
    if (!found.spec || !found.knobs)
        return SMELT_ERROR_OUT_OF_MEMORY;
    smelt__struct_write(about_entry(), &found, entry);
    return SMELT_OK;
}

smelt_status smelt_tuning_walk(const smelt_context *context, smelt_tuning_function each,
                               void *user) {
    if (need(context, "context"))
        return SMELT_ERROR_INVALID_ARGUMENT;
    if (!each)
        return smelt__fail_null("the function to call");
    smelt_status status = smelt__context_check_process(context);
    return status ? status : smelt__tuning_walk(context->tuning, each, user);
}

static smelt_status copy_text(const char *name, const char *from, char to[SMELT__TUNING_TEXT]) {
    if (strlen(from) >= SMELT__TUNING_TEXT)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "entry.%s is longer than %d bytes", name,
                           SMELT__TUNING_TEXT - 1);
    memcpy(to, from, strlen(from) + 1);
    return SMELT_OK;
}

/* Rejects an entry that a line of the file cannot hold. */
static smelt_status check_entry(const smelt_context *context, const smelt_tuning_entry *entry,
                                struct smelt__tuning_line *line) {
    struct smelt__tuning_line again;
    struct smelt__text text = {0};
    struct smelt__message message = {0};
    const char *device = entry->device && *entry->device ? entry->device : context->device_name;

    if (copy_text("device", device, line->device) ||
        copy_text("knobs", entry->knobs ? entry->knobs : "", line->knobs))
        return SMELT_ERROR_INVALID_ARGUMENT;
    line->microseconds = entry->microseconds;
    if (!line->device[0])
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "the entry names no device and the context has none");
    if (!line->knobs[0])
        return SMELT_OK;
    if (!(entry->microseconds >= 0.01 && entry->microseconds < 1e12))
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "the entry's microseconds are %g; legal: 0.01 to 1e12",
                           entry->microseconds);
    smelt__tuning_line_print(line, &text);
    const int valid = text.data &&
                      smelt__tuning_line_parse(text.data, text.length - 1, &again, &message) > 0 &&
                      strcmp(again.device, line->device) == 0;
    const int out_of_memory = text.failed;
    smelt__text_free(&text);
    if (out_of_memory)
        return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory");
    return valid ? SMELT_OK
                 : smelt__fail(SMELT_ERROR_INVALID_SPEC, "an entry of %s on %s is invalid: %s",
                               line->spec, line->device,
                               message.text[0] ? message.text : "a line cannot hold the device");
}

smelt_status smelt_tuning_store(smelt_context *context, const smelt_tuning_entry *given) {
    smelt_tuning_entry entry;
    struct smelt__tuning_line line;
    struct smelt__spec stripped;
    struct smelt__plan plan;
    struct smelt__message message;

    if (need(context, "context") || smelt__struct_read(about_entry(), given, &entry))
        return SMELT_ERROR_INVALID_ARGUMENT;
    smelt_status status = smelt__context_check_process(context);
    if (!status)
        status = strip(entry.spec, &stripped, line.spec);
    if (!status)
        status = check_entry(context, &entry, &line);
    if (!status && line.knobs[0] &&
        smelt__plan_make_tuned(&stripped, context->arch, line.knobs, &plan, &message))
        status = smelt__fail(SMELT_ERROR_UNSUPPORTED, "%s", message.text);
    return status ? status : smelt__tuning_store(context->tuning, &line);
}

/* ---- candidates ------------------------------------------------------------------------------ */

smelt_status smelt_tuning_candidates(const char *kernel, const char *arch_name, const char *knobs,
                                     size_t limit, smelt_text_function each, void *user) {
    struct smelt__spec spec;
    const struct smelt__arch *arch;
    struct smelt__candidates candidates;
    struct smelt__message message;

    if (!each)
        return smelt__fail_null("the function to call");
    smelt_status status = smelt__kernel_from_text(kernel, arch_name, &spec, &arch);
    if (status)
        return status;
    if (knobs && smelt__candidates_check_knobs(&spec, knobs, &message))
        return smelt__fail(SMELT_ERROR_INVALID_SPEC, "%s", message.text);
    if (smelt__candidates_find(&spec, arch, knobs, &candidates, &message))
        return smelt__fail(message.out_of_memory ? SMELT_ERROR_OUT_OF_MEMORY
                                                 : SMELT_ERROR_UNSUPPORTED,
                           "%s", message.text);
    for (int i = 0; i < candidates.count && !status && (!limit || (size_t)i < limit); i++) {
        char text[SMELT__SPEC_TEXT];
        smelt__spec_print(&candidates.list[i].spec, text);
        if (each(user, text))
            status =
                smelt__fail(SMELT_ERROR_CANCELLED, "the caller's function ended the enumeration");
    }
    smelt__candidates_free(&candidates);
    return status;
}
