/* See engine.h: a plan's complete source. */
#include <string.h>

#include "codegen/template/engine.h"

/* Deterministic and without versions: it is part of the cache's key. */
static int emit_banner(const struct smelt__plan *plan, struct smelt__text *out) {
    char spec[SMELT__SPEC_TEXT];
    struct smelt__text summary = {0};
    smelt__spec_print(&plan->spec, spec);
    smelt__plan_print_summary(plan, &summary);
    smelt__text_print(out, "/*\n * Written by smelt; do not edit. To write it again%s:\n",
                      plan->spec.tuned ? ", the tuned knobs named" : "");
    smelt__text_print(out, " *   smelt emit %s --arch %s\n *\n", spec, plan->arch->name);
    for (const char *at = summary.data; at && *at;) {
        const char *end = strchrnul(at, '\n');
        smelt__text_print(out, " * %.*s\n", (int)(end - at), at);
        at = end + (*end == '\n');
    }
    smelt__text_append_string(out, " */\n\n");
    int failed = summary.failed;
    smelt__text_free(&summary);
    return failed ? -1 : 0;
}

/* Emits an enumerator, with its meaning in a separate column. */
static void emit_enumerator(const char *name, int value, const char *meaning,
                            struct smelt__text *out) {
    enum { COLUMN = 36 };
    size_t start = out->length;
    smelt__text_print(out, "    %s = %d,", name, value);
    int width = (int)(out->length - start);
    smelt__text_print(out, "%*s/* %s */\n", width < COLUMN ? COLUMN - width : 1, "", meaning);
}

static void emit_prologue(const struct smelt__plan *plan, struct smelt__text *out) {
    if (plan->constant_count) {
        smelt__text_append_string(out, "enum {\n");
        for (int i = 0; i < plan->constant_count; i++)
            emit_enumerator(plan->constants[i].name, plan->constants[i].value,
                            plan->constants[i].meaning, out);
        smelt__text_append_string(out, "};\n\n");
    }
    smelt__text_append_string(out,
                              "/* Shared memory, in bytes from the arena's start. */\nenum {\n");
    for (int i = 0; i < plan->region_count; i++)
        emit_enumerator(plan->regions[i].name, plan->regions[i].offset, plan->regions[i].meaning,
                        out);
    emit_enumerator("SHARED_BYTES", plan->shared_bytes, "the arena's size", out);
    smelt__text_append_string(out, "};\n\n");
    smelt__text_print(out, "#define KERNEL_NAME %s\n\n", plan->kernel_name);
}

static int emit_head(const struct smelt__plan *plan, struct smelt__text *out,
                     struct smelt__message *message) {
    const int failed = emit_banner(plan, out);
    emit_prologue(plan, out);
    if (failed || out->failed)
        smelt__message_set_out_of_memory(message);
    return failed || out->failed ? -1 : 0;
}

static int lookup(const void *user, const char *name, int *found) {
    return smelt__plan_constant(user, name, found);
}

int smelt__source_emit(const struct smelt__plan *plan, const struct smelt__template_table *table,
                       struct smelt__text *out, struct smelt__message *message) {
    const struct smelt__scope scope = {lookup, plan};
    const struct smelt__template *const items =
        table ? table->items : smelt__templates_embedded(message);
    if (!items || emit_head(plan, out, message))
        return -1;
    return smelt__parts_emit(items, table ? table->count : smelt__template_count,
                             plan->template_name, &scope, out, message);
}

static void append_digest(const char *what, const unsigned char digest[SMELT__TEMPLATE_DIGEST],
                          struct smelt__text *out) {
    smelt__text_print(out, "%s ", what);
    for (int i = 0; i < SMELT__TEMPLATE_DIGEST; i++)
        smelt__text_print(out, "%02x", digest[i]);
    smelt__text_append_string(out, "\n");
}

int smelt__source_identify(const struct smelt__plan *plan,
                           const struct smelt__template_table *table, struct smelt__text *out,
                           struct smelt__message *message) {
    if (emit_head(plan, out, message))
        return -1;
    const struct smelt__template_table used =
        table ? *table : (struct smelt__template_table){smelt__templates, smelt__template_count};
    int i = 0;
    while (i < used.count && strcmp(used.items[i].name, plan->template_name) != 0)
        i++;
    if (i == used.count)
        return smelt__message_set(message, "there is no template '%s'", plan->template_name);
    append_digest(plan->template_name, used.items[i].digest, out);
    append_digest("engine", smelt__engine_digest, out);
    if (out->failed)
        smelt__message_set_out_of_memory(message);
    return out->failed ? -1 : 0;
}
