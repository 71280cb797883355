/* See spec.h: values. */
#include "codegen/spec/spec.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

int smelt__spec_knob(const struct smelt__spec *spec, const char *name, int otherwise) {
    const int64_t value = smelt__spec_get(spec, name);
    return value == SMELT__AUTO ? otherwise : (int)value;
}

int smelt__spec_refuse(const struct smelt__spec *spec, struct smelt__message *message,
                       const char *format, ...) {
    char reason[sizeof message->text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return smelt__message_set(message, "%s: %s", spec->schema->name, reason);
}
