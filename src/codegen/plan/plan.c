/* See plan.h: the code common to all families' plans. */
#include "codegen/plan/plan.h"

#include <stdio.h>
#include <string.h>

enum smelt__origin smelt__plan_origin(const struct smelt__spec *spec, const char *key) {
    const int index = smelt__spec_key(spec->schema, key);
    if (index < 0 || spec->values[index] == SMELT__AUTO)
        return SMELT__FROM_RULE;
    return !spec->schema->keys[index].knob ? SMELT__FROM_SPEC
           : spec->tuned >> index & 1      ? SMELT__FROM_TUNING
                                           : SMELT__FROM_KNOB;
}

/* ---- building -------------------------------------------------------------------------------- */

void smelt__plan_add(struct smelt__plan *plan, const char *name, int value,
                     enum smelt__origin origin, const char *meaning) {
    int found;
    smelt__plan_constant(plan, name, &found);
    if (found || plan->constant_count == SMELT__MAX_CONSTANTS) {
        plan->defect = name;
        return;
    }
    struct smelt__constant *constant = &plan->constants[plan->constant_count++];
    constant->name = name;
    constant->value = value;
    constant->origin = origin;
    constant->meaning = meaning;
}

void smelt__plan_set_template(struct smelt__plan *plan, const char *variant) {
    snprintf(plan->template_name, sizeof plan->template_name, "%s%s%s.cu", plan->spec.schema->name,
             *variant ? "." : "", variant);
}

void smelt__plan_add_rows(struct smelt__plan *plan, const struct smelt__spec *spec,
                          const struct smelt__plan_row *rows, int count) {
    for (int i = 0; i < count; i++) {
        if (rows[i].key && smelt__spec_key(spec->schema, rows[i].key) < 0)
            plan->defect = rows[i].key;
        smelt__plan_add(plan, rows[i].name, rows[i].value,
                        rows[i].key ? smelt__plan_origin(spec, rows[i].key) : SMELT__DERIVED,
                        rows[i].meaning);
    }
}

int smelt__plan_add_region(struct smelt__plan *plan, const char *name, int bytes, int alignment,
                           const char *meaning) {
    int found;
    smelt__plan_constant(plan, name, &found);
    if (found || plan->region_count == SMELT__MAX_REGIONS || bytes < 0 || alignment <= 0) {
        plan->defect = name;
        return 0;
    }
    int end = 0;
    if (plan->region_count) {
        const struct smelt__region *last = &plan->regions[plan->region_count - 1];
        end = last->offset + last->bytes;
    }
    struct smelt__region *region = &plan->regions[plan->region_count++];
    region->name = name;
    region->offset = (end + alignment - 1) / alignment * alignment;
    region->bytes = bytes;
    region->meaning = meaning;
    plan->shared_bytes = region->offset + bytes;
    return region->offset;
}

int smelt__plan_constant(const struct smelt__plan *plan, const char *name, int *tells) {
    int unasked, *const found = tells ? tells : &unasked;
    *found = 1;
    for (int i = 0; i < plan->constant_count; i++)
        if (strcmp(plan->constants[i].name, name) == 0)
            return plan->constants[i].value;
    for (int i = 0; i < plan->region_count; i++)
        if (strcmp(plan->regions[i].name, name) == 0)
            return plan->regions[i].offset;
    if (strcmp(name, "SHARED_BYTES") == 0)
        return plan->shared_bytes;
    *found = 0;
    return 0;
}

/* ---- printing -------------------------------------------------------------------------------- */

static const char *origin_name(enum smelt__origin origin) {
    switch (origin) {
    case SMELT__FROM_SPEC:
        return "spec";
    case SMELT__FROM_KNOB:
        return "knob";
    case SMELT__FROM_TUNING:
        return "tuned";
    case SMELT__FROM_RULE:
        return "rule";
    case SMELT__DERIVED:
        return "derived";
    }
    return "?";
}

static int is_knob(const struct smelt__constant *constant) {
    return constant->origin == SMELT__FROM_KNOB || constant->origin == SMELT__FROM_TUNING ||
           constant->origin == SMELT__FROM_RULE;
}

static int longest_name(const struct smelt__plan *plan) {
    size_t longest = strlen("SHARED_BYTES");
    for (int i = 0; i < plan->constant_count; i++)
        if (strlen(plan->constants[i].name) > longest)
            longest = strlen(plan->constants[i].name);
    for (int i = 0; i < plan->region_count; i++)
        if (strlen(plan->regions[i].name) > longest)
            longest = strlen(plan->regions[i].name);
    return (int)longest;
}

/* Whether the tuning entry chose the variant, which is a knob without a constant. */
static int is_variant_tuned(const struct smelt__plan *plan) {
    const int key = smelt__spec_key(plan->spec.schema, "variant");
    return key >= 0 && plan->spec.tuned >> key & 1;
}

static void print_heading(const struct smelt__plan *plan, struct smelt__text *text) {
    char spec[SMELT__SPEC_TEXT];
    smelt__spec_print_asked(&plan->spec, spec);
    smelt__text_print(text, "spec     %s\narch     %s\nvariant  %s%s\nkernel   %s\n", spec,
                      plan->arch->name, plan->variant, is_variant_tuned(plan) ? " (tuned)" : "",
                      plan->kernel_name);
}

/* The knobs (knobs = 1) or the other constants. */
static void print_constants(const struct smelt__plan *plan, int knobs, struct smelt__text *text) {
    int width = longest_name(plan);
    const char *knob_heading = plan->spec.tuned
                                   ? "knobs (by the spec, the tuning file, or by rule)\n"
                                   : "knobs (by the spec, or by rule)\n";
    smelt__text_append_string(text, knobs ? knob_heading : "constants\n");
    for (int i = 0; i < plan->constant_count; i++) {
        const struct smelt__constant *constant = &plan->constants[i];
        if (is_knob(constant) == knobs)
            smelt__text_print(text, "  %-*s %8d  %-7s  %s\n", width, constant->name,
                              constant->value, origin_name(constant->origin), constant->meaning);
    }
}

static void print_shared_memory(const struct smelt__plan *plan, struct smelt__text *text) {
    int width = longest_name(plan);
    smelt__text_append_string(text, "shared memory (offset, bytes)\n");
    for (int i = 0; i < plan->region_count; i++) {
        const struct smelt__region *region = &plan->regions[i];
        smelt__text_print(text, "  %-*s %8d  %7d  %s\n", width, region->name, region->offset,
                          region->bytes, region->meaning);
    }
    smelt__text_print(text, "  %-*s %8d  of %d that a block may have on %s\n", width,
                      "SHARED_BYTES", plan->shared_bytes, plan->arch->shared_per_block,
                      plan->arch->name);
}

/* Prints the grid rule if blocks follow from items; otherwise the family's launch has its
 * own rule. */
static void print_grid(const struct smelt__plan *plan, struct smelt__text *text) {
    if (plan->item)
        smelt__text_print(text, "  grid: %d block%s a %s%s\n", plan->blocks_per_item,
                          plan->blocks_per_item == 1 ? "" : "s", plan->item,
                          plan->persistent ? ", but no more than are resident at once" : "");
    if (plan->cluster)
        smelt__text_print(text, "  clusters of %d blocks\n", plan->cluster);
    if (plan->persistent)
        smelt__text_append_string(
            text, plan->contiguous
                      ? "  persistent: a block does the work of several, one contiguous run\n"
                      : "  persistent: in a grid-stride loop a block does the work of several\n");
}

static void print_launch(const struct smelt__plan *plan, struct smelt__text *text) {
    smelt__text_print(text,
                      "launch\n"
                      "  %d threads a block, %d block%s resident per multiprocessor, at most %d "
                      "registers a thread\n",
                      plan->threads, plan->blocks_per_multiprocessor,
                      plan->blocks_per_multiprocessor == 1 ? "" : "s", plan->max_registers);
    print_grid(plan, text);
}

void smelt__plan_print_text(const struct smelt__plan *plan, struct smelt__text *text) {
    print_heading(plan, text);
    if (*plan->declined)
        smelt__text_print(text, "reason   %s\n", plan->declined);
    smelt__text_append_string(text, "\n");
    print_constants(plan, 1, text);
    smelt__text_append_string(text, "\n");
    print_constants(plan, 0, text);
    smelt__text_append_string(text, "\n");
    print_shared_memory(plan, text);
    smelt__text_append_string(text, "\n");
    print_launch(plan, text);
}

void smelt__plan_print_summary(const struct smelt__plan *plan, struct smelt__text *text) {
    print_heading(plan, text);
    print_constants(plan, 1, text);
    print_shared_memory(plan, text);
    print_launch(plan, text);
}

static void print_json_constants(const struct smelt__plan *plan, int knobs,
                                 struct smelt__text *text) {
    const char *separator = "";
    for (int i = 0; i < plan->constant_count; i++) {
        const struct smelt__constant *constant = &plan->constants[i];
        if (is_knob(constant) != knobs)
            continue;
        smelt__text_append_string(text, separator);
        smelt__text_append_json(text, constant->name);
        smelt__text_print(text,
                          ": {\"value\": %d, \"origin\": \"%s\", \"meaning\": ", constant->value,
                          origin_name(constant->origin));
        smelt__text_append_json(text, constant->meaning);
        smelt__text_append_string(text, "}");
        separator = ", ";
    }
}

static void print_json_regions(const struct smelt__plan *plan, struct smelt__text *text) {
    for (int i = 0; i < plan->region_count; i++) {
        const struct smelt__region *region = &plan->regions[i];
        smelt__text_append_string(text, i ? ", {\"name\": " : "{\"name\": ");
        smelt__text_append_json(text, region->name);
        smelt__text_print(text, ", \"offset\": %d, \"bytes\": %d, \"meaning\": ", region->offset,
                          region->bytes);
        smelt__text_append_json(text, region->meaning);
        smelt__text_append_string(text, "}");
    }
}

void smelt__plan_print_json(const struct smelt__plan *plan, struct smelt__text *text) {
    char spec[SMELT__SPEC_TEXT];
    smelt__spec_print_asked(&plan->spec, spec);
    smelt__text_append_string(text, "{\"spec\": ");
    smelt__text_append_json(text, spec);
    smelt__text_append_string(text, ", \"arch\": ");
    smelt__text_append_json(text, plan->arch->name);
    smelt__text_append_string(text, ", \"variant\": ");
    smelt__text_append_json(text, plan->variant);
    smelt__text_append_string(text, ", \"kernel\": ");
    smelt__text_append_json(text, plan->kernel_name);
    smelt__text_append_string(text, ", \"knobs\": {");
    print_json_constants(plan, 1, text);
    smelt__text_append_string(text, "}, \"derived\": {");
    print_json_constants(plan, 0, text);
    smelt__text_append_string(text, "}, \"shared_memory\": [");
    print_json_regions(plan, text);
    smelt__text_print(text,
                      "], \"threads\": %d, \"shared_bytes\": %d, \"shared_limit\": %d, "
                      "\"registers_max\": %d, \"blocks_per_multiprocessor\": %d, \"item\": ",
                      plan->threads, plan->shared_bytes, plan->arch->shared_per_block,
                      plan->max_registers, plan->blocks_per_multiprocessor);
    if (plan->item)
        smelt__text_append_json(text, plan->item);
    else
        smelt__text_append_string(text, "null");
    smelt__text_print(text, ", \"blocks_per_item\": %d, \"cluster\": %d, \"persistent\": %s}",
                      plan->item ? plan->blocks_per_item : 0, plan->cluster,
                      plan->persistent ? "true" : "false");
}
