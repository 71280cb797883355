/* See spec.h: values, checks and the canonical text. */
#include "codegen/spec/spec.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "codegen/spec/internal.h"
#include "codegen/spec/knobs.h"
#include "codegen/spec/names.h"

void smelt__spec_init(struct smelt__spec *spec, const struct smelt__schema *schema) {
    memset(spec, 0, sizeof *spec);
    spec->schema = schema;
    for (int i = 0; i < schema->key_count; i++)
        spec->values[i] = schema->keys[i].required ? SMELT__AUTO : schema->keys[i].default_value;
}

int smelt__spec_key(const struct smelt__schema *schema, const char *name) {
    for (int i = 0; i < schema->key_count; i++)
        if (strcmp(schema->keys[i].name, name) == 0)
            return i;
    return -1;
}

int64_t smelt__spec_get(const struct smelt__spec *spec, const char *name) {
    const int index = smelt__spec_key(spec->schema, name);
    return index >= 0 ? spec->values[index] : SMELT__AUTO;
}

void smelt__spec_set(struct smelt__spec *spec, const char *name, int64_t value) {
    const int index = smelt__spec_key(spec->schema, name);
    if (index >= 0)
        spec->values[index] = value;
}

void smelt__spec_bad_value(const char *name, const struct smelt__key *key, const char *value,
                           struct smelt__message *message) {
    const char *nearest = key->choices ? smelt__nearest_name(value, key->choices) : NULL;
    smelt__message_set(message, "%s: %s=%s is not legal%s%s%s; legal: %s", name, key->name, value,
                       nearest ? ", did you mean " : "", nearest ? nearest : "", nearest ? "?" : "",
                       key->legal);
}

/* ---- checking -------------------------------------------------------------------------------- */

/* ---- printing -------------------------------------------------------------------------------- */

/* Appends at *used as far as there is room, and counts what there was none for. */
__attribute__((format(printf, 4, 5))) static void put(char *text, size_t size, size_t *used,
                                                      const char *format, ...) {
    const size_t room = *used < size ? size - *used : 0;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(room ? text + *used : NULL, room, format, arguments);
    va_end(arguments);
    if (length > 0)
        *used += (size_t)length;
}

static int is_printed(const struct smelt__spec *spec, int index) {
    const struct smelt__key *key = &spec->schema->keys[index];
    const int64_t value = spec->values[index];
    return (value != SMELT__AUTO || key->list) && (key->required || value != key->default_value);
}

/* `name=value` behind a separator, if it is not 0. */
static void put_value(const struct smelt__spec *spec, const char *name,
                      const struct smelt__key *key, int64_t value, char separator, char *text,
                      size_t size, size_t *used) {
    if (separator)
        put(text, size, used, "%c", separator);
    put(text, size, used, "%s=", name);
    if (value == SMELT__AUTO)
        put(text, size, used, "auto");
    else if (key->list)
        for (int k = 0; k < (int)value; k++)
            put(text, size, used, "%s%d", k ? "/" : "", spec->list[k]);
    else if (key->choices)
        put(text, size, used, "%s", key->choices[value]);
    else
        put(text, size, used, "%" PRId64, value);
}

/* Keys of `mask`, or knobs alone; `first` precedes the first of them. */
static void put_keys(const struct smelt__spec *spec, uint32_t mask, int knobs_only, char first,
                     char *text, size_t size, size_t *used) {
    char separator = first;
    for (int i = 0; i < spec->schema->key_count; i++) {
        const struct smelt__key *key = &spec->schema->keys[i];
        if (!(mask >> i & 1) || !is_printed(spec, i) || (knobs_only && !key->knob))
            continue;
        put_value(spec, key->name, key, spec->values[i], separator, text, size, used);
        separator = ',';
    }
    for (int i = 0; i < spec->knob_count; i++) {
        char name[80];
        smelt__knob_name(spec->schema, &spec->knobs[i], name, sizeof name);
        put_value(spec, name, smelt__knob_key(spec->schema, &spec->knobs[i]), spec->knobs[i].value,
                  separator, text, size, used);
        separator = ',';
    }
}

/* The canonical text with the keys of `mask`, as far as there is room; its whole length. */
static size_t print_spec(const struct smelt__spec *spec, uint32_t mask, char *text, size_t size) {
    size_t used = 0;
    put(text, size, &used, "%s", spec->schema->name);
    put_keys(spec, mask, 0, ':', text, size, &used);
    return used;
}

static int check_list(const struct smelt__spec *spec, const struct smelt__key *key, int64_t count,
                      struct smelt__message *message) {
    const char *name = spec->schema->name;
    if (count == SMELT__AUTO)
        return 0;
    for (int i = 0; i < (int)count && i < SMELT__MAX_LIST; i++) {
        const int entry = spec->list[i], before = i > 0 ? spec->list[i - 1] : 0;
        if (entry < key->minimum || entry > key->maximum) {
            smelt__message_set(message, "%s: %s: entry %d, %d, is out of range; legal: %s", name,
                               key->name, i + 1, entry, key->legal);
            return -1;
        }
        if (i > 0 && entry <= before) {
            smelt__message_set(
                message, "%s: %s: entry %d, %d, %s entry %d, %d; legal: %s", name, key->name, i + 1,
                entry, entry == before ? "is the same as" : "is below", i, before, key->legal);
            return -1;
        }
    }
    return 0;
}

static int check_key(const char *name, const struct smelt__key *key, int64_t value,
                     struct smelt__message *message) {
    if (value == SMELT__AUTO) {
        if (!key->required)
            return 0;
        smelt__message_set(message, "%s: %s is missing; legal: %s", name, key->name, key->legal);
        return -1;
    }
    int64_t minimum = key->minimum, maximum = key->maximum;
    if (key->choices) {
        minimum = 0;
        for (maximum = -1; key->choices[maximum + 1];)
            maximum++;
    }
    if (value >= minimum && value <= maximum)
        return 0;
    char number[32];
    snprintf(number, sizeof number, "%" PRId64, value);
    smelt__spec_bad_value(name, key, number, message);
    return -1;
}

/* A knob must be legal for every member it is for. */
static int check_knob(const struct smelt__spec *spec, const struct smelt__knob *knob,
                      struct smelt__message *message) {
    for (int i = 0; i < spec->schema->member_count; i++) {
        const int key = smelt__knob_for(spec->schema, knob, i);
        const struct smelt__schema *member = spec->schema->members[i].schema;
        if (key >= 0 && check_key(spec->schema->name, &member->keys[key], knob->value, message))
            return -1;
    }
    return 0;
}

int smelt__spec_check(const struct smelt__spec *spec, struct smelt__message *message) {
    const struct smelt__schema *schema = spec->schema;
    char text[SMELT__SPEC_TEXT];
    for (int i = 0; i < schema->key_count; i++)
        if (schema->keys[i].list
                ? check_list(spec, &schema->keys[i], spec->values[i], message)
                : check_key(schema->name, &schema->keys[i], spec->values[i], message))
            return -1;
    for (int i = 0; i < spec->knob_count; i++)
        if (check_knob(spec, &spec->knobs[i], message))
            return -1;
    if (print_spec(spec, UINT32_MAX, text, sizeof text) >= sizeof text) {
        smelt__message_set(message, "%s: the spec's text is too long: at most %d characters",
                           schema->name, SMELT__SPEC_TEXT - 1);
        return -1;
    }
    return schema->check ? schema->check(spec, message) : 0;
}

void smelt__spec_print(const struct smelt__spec *spec, char text[SMELT__SPEC_TEXT]) {
    print_spec(spec, UINT32_MAX, text, SMELT__SPEC_TEXT);
}

void smelt__spec_print_asked(const struct smelt__spec *spec, char text[SMELT__SPEC_TEXT]) {
    print_spec(spec, ~spec->tuned, text, SMELT__SPEC_TEXT);
}

void smelt__spec_print_knobs(const struct smelt__spec *spec, char text[SMELT__SPEC_TEXT]) {
    size_t used = 0;
    text[0] = '\0';
    put_keys(spec, UINT32_MAX, 1, 0, text, SMELT__SPEC_TEXT, &used);
}

/* ---- knobs taken over ------------------------------------------------------------------------ */

void smelt__spec_strip_knobs(const struct smelt__spec *spec, struct smelt__spec *stripped) {
    *stripped = *spec;
    stripped->tuned = 0;
    stripped->knob_count = 0;
    memset(stripped->knobs, 0, sizeof stripped->knobs);
    for (int i = 0; i < spec->schema->key_count; i++)
        if (spec->schema->keys[i].knob)
            stripped->values[i] = spec->schema->keys[i].default_value;
}

int smelt__spec_tune(struct smelt__spec *spec, const char *knobs, struct smelt__message *message) {
    struct smelt__spec entry;
    smelt__spec_init(&entry, spec->schema);
    if (smelt__spec_parse_keys(knobs, 1, &entry, message))
        return -1;
    for (int i = 0; i < spec->schema->key_count; i++) {
        if (!spec->schema->keys[i].knob || entry.values[i] == SMELT__AUTO ||
            spec->values[i] != SMELT__AUTO)
            continue;
        spec->values[i] = entry.values[i];
        spec->tuned |= UINT32_C(1) << i;
    }
    return 0;
}

void smelt__spec_hand_on(const struct smelt__spec *spec, int member, struct smelt__spec *kernel) {
    for (int i = 0; i < kernel->schema->key_count; i++) {
        const int own = smelt__spec_key(spec->schema, kernel->schema->keys[i].name);
        if (own >= 0)
            kernel->values[i] = spec->values[own];
    }
    /* Those for all come first, so that one for this member wins. */
    for (int i = 0; i < spec->knob_count; i++) {
        const int key = smelt__knob_for(spec->schema, &spec->knobs[i], member);
        if (key >= 0)
            kernel->values[key] = spec->knobs[i].value;
    }
}
