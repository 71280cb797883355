/* See spec.h: removing knobs, and applying a tuning entry. */
#include <string.h>

#include "codegen/spec/spec.h"

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
