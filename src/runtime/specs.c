/* Public calls on specs, plans and sources, all pure: see smelt/kernels.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/family.h"
#include "codegen/preset.h"
#include "codegen/spec/knobs.h"
#include "codegen/template/engine.h"
#include "runtime/abi.h"
#include "runtime/log.h"
#include "runtime/specs.h"
#include "smelt/kernels.h"

smelt_status smelt__spec_from_text(const char *text, struct smelt__spec *spec) {
    struct smelt__message message;
    if (!text)
        return smelt__fail_null("spec");
    if (smelt__spec_parse(text, spec, &message))
        return smelt__fail(SMELT_ERROR_INVALID_SPEC, "%s", message.text);
    return SMELT_OK;
}

/* Passes one item to the caller's function. */
static smelt_status give(smelt_text_function each, void *user, const char *text) {
    if (each(user, text))
        return smelt__fail(SMELT_ERROR_CANCELLED, "the caller's function ended the enumeration");
    return SMELT_OK;
}

smelt_status smelt__specs_give(const struct smelt__spec *specs, int count, smelt_text_function each,
                               void *user) {
    smelt_status status = SMELT_OK;
    for (int i = 0; i < count && !status; i++) {
        char text[SMELT__SPEC_TEXT];
        smelt__spec_print(&specs[i], text);
        status = give(each, user, text);
    }
    return status;
}

smelt_status smelt_spec_canonical(const char *text, char **canonical) {
    struct smelt__spec spec;
    char printed[SMELT__SPEC_TEXT];

    if (!canonical)
        return smelt__fail_null("canonical");
    *canonical = NULL;
    smelt_status status = smelt__spec_from_text(text, &spec);
    if (status)
        return status;
    smelt__spec_print(&spec, printed);
    *canonical = strdup(printed);
    return *canonical ? SMELT_OK : smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory");
}

smelt_status smelt_spec_get(const char *text, const char *key, int64_t *value) {
    struct smelt__spec spec;
    if (!key || !value)
        return smelt__fail_null(key ? "value" : "key");
    const smelt_status status = smelt__spec_from_text(text, &spec);
    if (status)
        return status;
    if (smelt__spec_key(spec.schema, key) < 0)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "%s has no key '%s'; `smelt list` names its keys", spec.schema->name,
                           key);
    *value = smelt__spec_get(&spec, key);
    return SMELT_OK;
}

smelt_status smelt_preset_expand(const char *preset, int tp, unsigned passes,
                                 smelt_text_function each, void *user) {
    struct smelt__spec specs[SMELT__MAX_PRESET_SPECS];
    struct smelt__message message;

    if (!preset || !each)
        return smelt__fail_null(preset ? "each" : "preset");
    if (passes >> SMELT__PASSES)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "passes = %u is not legal; legal: 0 for all, SMELT_PASS_FORWARD, "
                           "SMELT_PASS_BACKWARD, or both",
                           passes);
    int count = smelt__preset_expand(preset, tp, passes, specs, &message);
    if (count < 0)
        return smelt__fail(SMELT_ERROR_INVALID_SPEC, "%s", message.text);
    return smelt__specs_give(specs, count, each, user);
}

/* Entry `index` of a list; NULL past its end. `line`: room for a text of two words. */
static const char *listed(enum smelt_list_kind kind, int index, char line[64]) {
    const struct smelt__schema *family;
    const struct smelt__arch *arch;
    const struct smelt__gpu *gpu;
    switch (kind) {
    case SMELT_LIST_PRESETS:
        return smelt__preset_at(index);
    case SMELT_LIST_FAMILIES:
        family = smelt__schema_at(index);
        return family ? family->name : NULL;
    case SMELT_LIST_ARCHS:
        arch = smelt__arch_at(index);
        return arch ? arch->name : NULL;
    case SMELT_LIST_GPUS:
        gpu = smelt__gpu_at(index);
        if (gpu)
            snprintf(line, 64, "%s %s", gpu->name, gpu->arch);
        return gpu ? line : NULL;
    }
    return NULL;
}

smelt_status smelt_list(enum smelt_list_kind kind, smelt_text_function each, void *user) {
    smelt_status status = each ? SMELT_OK : smelt__fail_null("each");
    char line[64];
    if ((int)kind < 0 || kind > SMELT_LIST_GPUS)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "kind is %d; legal: 0..%d", (int)kind,
                           SMELT_LIST_GPUS);
    for (int i = 0; !status && listed(kind, i, line); i++)
        status = give(each, user, listed(kind, i, line));
    return status;
}

/* Finds a family by its name or by a spec. */
static smelt_status find_family(const char *name, const struct smelt__schema **schema) {
    struct smelt__message message;
    struct smelt__spec spec = {0};
    smelt_status status = SMELT_OK;
    if (!name)
        return smelt__fail_null("family");
    if (strchr(name, ':'))
        status = smelt__spec_from_text(name, &spec);
    else if (!(spec.schema = smelt__schema_find(name, &message)))
        status = smelt__fail(SMELT_ERROR_INVALID_SPEC, "%s", message.text);
    *schema = spec.schema;
    return status;
}

/* Its own, then of an operator the knobs of its kernels. */
static const struct smelt__key *find_key(const struct smelt__schema *schema, int index,
                                         const char **kernel) {
    *kernel = "";
    if (index < 0)
        return NULL;
    return index < schema->key_count
               ? &schema->keys[index]
               : smelt__schema_knob_row(schema, index - schema->key_count, kernel);
}

static int key_count(const struct smelt__schema *schema) {
    const char *kernel;
    int count = 0;
    while (find_key(schema, count, &kernel))
        count++;
    return count;
}

smelt_status smelt_family_get_info(const char *name, smelt_family_info *info) {
    const struct smelt__struct *about =
        SMELT__STRUCT(smelt_family_info, "info", "SMELT_FAMILY_INFO_INIT", example);
    const struct smelt__schema *schema;

    smelt_status status = find_family(name, &schema);
    if (!status)
        status = smelt__struct_check(about, info);
    if (status)
        return status;
    const smelt_family_info found = {.summary = schema->summary,
                                     .is_operator = smelt__operator_of(schema) != NULL,
                                     .keys = key_count(schema),
                                     .example = schema->example ? schema->example : ""};
    smelt__struct_write(about, &found, info);
    return SMELT_OK;
}

smelt_status smelt_family_get_key(const char *name, int index, smelt_family_key *key) {
    const struct smelt__struct *about =
        SMELT__STRUCT(smelt_family_key, "key", "SMELT_FAMILY_KEY_INIT", only_with);
    const struct smelt__schema *schema;

    smelt_status status = find_family(name, &schema);
    if (!status)
        status = smelt__struct_check(about, key);
    if (status)
        return status;
    const char *kernel;
    const struct smelt__key *from = find_key(schema, index, &kernel);
    if (!from && key_count(schema) == 0)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "%s has no keys", name);
    if (!from)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "%s has no key number %d: legal are 0..%d",
                           name, index, key_count(schema) - 1);
    const smelt_family_key found = {.name = from->name,
                                    .legal = from->legal,
                                    .meaning = from->meaning,
                                    .required = from->required,
                                    .knob = from->knob,
                                    .kernel = kernel,
                                    .variants = from->variants ? from->variants : "",
                                    .only_with = from->only_with ? from->only_with : ""};
    smelt__struct_write(about, &found, key);
    return SMELT_OK;
}

smelt_status smelt__kernel_from_text(const char *kernel, const char *arch_name,
                                     struct smelt__spec *spec, const struct smelt__arch **arch) {
    struct smelt__message message;

    if (!kernel)
        return smelt__fail_null("kernel");
    SMELT__TRY(smelt__spec_from_text(kernel, spec));
    if (!arch_name)
        return smelt__fail_null("arch");
    if (smelt__operator_of(spec->schema))
        return smelt__fail(SMELT_ERROR_INVALID_SPEC,
                           "%s is an operator, not a kernel: expand it (smelt_spec_expand, `smelt "
                           "show`) and name one of its kernels",
                           kernel);
    *arch = smelt__arch_find(arch_name, &message);
    return *arch ? SMELT_OK : smelt__fail(SMELT_ERROR_INVALID_SPEC, "%s", message.text);
}

smelt_status smelt__plan_from_text(const char *kernel, const char *arch_name,
                                   struct smelt__plan *plan) {
    struct smelt__spec spec;
    struct smelt__message message;
    const struct smelt__arch *arch;

    smelt_status status = smelt__kernel_from_text(kernel, arch_name, &spec, &arch);
    if (status)
        return status;
    if (smelt__plan_make(&spec, arch, plan, &message))
        return smelt__fail(SMELT_ERROR_UNSUPPORTED, "%s", message.text);
    return SMELT_OK;
}

static smelt_status release(struct smelt__text *text, char **out) {
    int failed = text->failed;
    *out = smelt__text_release(text);
    if (*out && !failed)
        return SMELT_OK;
    free(*out);
    *out = NULL;
    return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory");
}

smelt_status smelt__plan_text(const struct smelt__plan *plan, int json, char **out) {
    struct smelt__text text = {0};
    if (json)
        smelt__plan_print_json(plan, &text);
    else
        smelt__plan_print_text(plan, &text);
    return release(&text, out);
}

static smelt_status source_failed(const struct smelt__plan *plan,
                                  const struct smelt__message *message) {
    char spec[SMELT__SPEC_TEXT];
    smelt__spec_print_asked(&plan->spec, spec);
    if (message->out_of_memory)
        return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory for the source of %s", spec);
    return smelt__fail(SMELT_ERROR_INTERNAL, "%s on %s: %s", spec, plan->arch->name, message->text);
}

smelt_status smelt__plan_emit(const struct smelt__plan *plan,
                              const struct smelt__template_table *templates,
                              struct smelt__text *source) {
    struct smelt__message message;
    return smelt__source_emit(plan, templates, source, &message) ? source_failed(plan, &message)
                                                                 : SMELT_OK;
}

smelt_status smelt__plan_key(const struct smelt__plan *plan,
                             const struct smelt__template_table *templates,
                             const char *const *options, enum smelt__output output,
                             struct smelt__cache_key *key) {
    struct smelt__message message;
    struct smelt__text text = {0};
    smelt_status status = SMELT_OK;
    if (smelt__source_identify(plan, templates, &text, &message))
        status = source_failed(plan, &message);
    else
        smelt__cache_key_make(key, text.data, text.length, options, plan->arch->name, output);
    smelt__text_free(&text);
    return status;
}

smelt_status smelt__plan_source(const struct smelt__plan *plan,
                                const struct smelt__template_table *templates, char **source) {
    struct smelt__text text = {0};
    smelt_status status = smelt__plan_emit(plan, templates, &text);

    if (!status)
        return release(&text, source);
    smelt__text_free(&text);
    return status;
}
