/* See spec.h: the canonical text. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "codegen/spec/internal.h"
#include "codegen/spec/knobs.h"

/* Appends at *used as far as the buffer reaches; *used counts all of it. */
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

/* Appends `name=value` after a separator, if that is not 0. */
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

/* Appends the keys of `mask`, or only knobs; `first` precedes the first of them. */
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

size_t smelt__spec_print_masked(const struct smelt__spec *spec, uint32_t mask, char *text,
                                size_t size) {
    size_t used = 0;
    put(text, size, &used, "%s", spec->schema->name);
    put_keys(spec, mask, 0, ':', text, size, &used);
    return used;
}

void smelt__spec_print(const struct smelt__spec *spec, char text[SMELT__SPEC_TEXT]) {
    smelt__spec_print_masked(spec, UINT32_MAX, text, SMELT__SPEC_TEXT);
}

void smelt__spec_print_asked(const struct smelt__spec *spec, char text[SMELT__SPEC_TEXT]) {
    smelt__spec_print_masked(spec, ~spec->tuned, text, SMELT__SPEC_TEXT);
}

void smelt__spec_print_key(const struct smelt__spec *spec, const char *key,
                           char text[SMELT__SPEC_TEXT]) {
    const int index = smelt__spec_key(spec->schema, key);
    size_t used = 0;
    text[0] = '\0';
    if (index >= 0)
        put_value(spec, key, &spec->schema->keys[index], spec->values[index], 0, text,
                  SMELT__SPEC_TEXT, &used);
}

void smelt__spec_print_knobs(const struct smelt__spec *spec, char text[SMELT__SPEC_TEXT]) {
    size_t used = 0;
    text[0] = '\0';
    put_keys(spec, UINT32_MAX, 1, 0, text, SMELT__SPEC_TEXT, &used);
}
