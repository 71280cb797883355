/* See spec.h: the checks of a spec. */
#include <inttypes.h>
#include <stdio.h>

#include "codegen/spec/internal.h"
#include "codegen/spec/keys.h"
#include "codegen/spec/knobs.h"
#include "codegen/spec/names.h"

int smelt__spec_bad_value(const char *name, const struct smelt__key *key, const char *value,
                          struct smelt__message *message) {
    const char *nearest = key->choices ? smelt__nearest_name(value, key->choices) : NULL;
    return smelt__message_set(message, "%s: %s=%s is not legal%s%s%s; legal: %s", name, key->name,
                              value, nearest ? ", did you mean " : "", nearest ? nearest : "",
                              nearest ? "?" : "", key->legal);
}

int smelt__refuse_value(const struct smelt__spec *spec, const char *name,
                        struct smelt__message *message) {
    char number[32];
    snprintf(number, sizeof number, "%" PRId64, smelt__spec_get(spec, name));
    return smelt__spec_bad_value(spec->schema->name,
                                 &spec->schema->keys[smelt__spec_key(spec->schema, name)], number,
                                 message);
}

static int check_list(const struct smelt__spec *spec, const struct smelt__key *key, int64_t count,
                      struct smelt__message *message) {
    const char *name = spec->schema->name;
    if (count == SMELT__AUTO)
        return 0;
    for (int i = 0; i < (int)count && i < SMELT__MAX_LIST; i++) {
        const int entry = spec->list[i], before = i > 0 ? spec->list[i - 1] : 0;
        if (entry < key->minimum || entry > key->maximum)
            return smelt__message_set(message, "%s: %s: entry %d, %d, is out of range; legal: %s",
                                      name, key->name, i + 1, entry, key->legal);
        if (i > 0 && entry <= before)
            return smelt__message_set(
                message, "%s: %s: entry %d, %d, %s entry %d, %d; legal: %s", name, key->name, i + 1,
                entry, entry == before ? "is the same as" : "is below", i, before, key->legal);
    }
    return 0;
}

static int check_key(const char *name, const struct smelt__key *key, int64_t value,
                     struct smelt__message *message) {
    if (value == SMELT__AUTO) {
        if (!key->required)
            return 0;
        return smelt__message_set(message, "%s: %s is missing; legal: %s", name, key->name,
                                  key->legal);
    }
    if (smelt__key_takes(key, value))
        return 0;
    char number[32];
    snprintf(number, sizeof number, "%" PRId64, value);
    return smelt__spec_bad_value(name, key, number, message);
}

/* Explains a knob for all members whose value only some of them accept. */
static void explain_members(const struct smelt__spec *spec, const struct smelt__knob *knob,
                            int refusing, struct smelt__message *message) {
    const struct smelt__member *members = spec->schema->members;
    for (int i = 0; knob->for_all && i < spec->schema->member_count; i++) {
        struct smelt__spec kernel;
        struct smelt__message ignored;
        const int key = smelt__knob_for(spec, knob, i);
        if (i == refusing || key < 0)
            continue;
        smelt__spec_init(&kernel, members[i].schema);
        smelt__spec_inherit(spec, i, &kernel);
        if (smelt__spec_check(&kernel, &ignored))
            continue;
        const char *const name = members[i].schema->keys[key].name;
        const int other = smelt__knob_for(spec, knob, refusing);
        smelt__spec_refuse(
            spec, message,
            "%s=%d is not legal for %s; legal there: %s; only %s accepts it, as %s.%s=%d", name,
            knob->value, members[refusing].prefix, members[refusing].schema->keys[other].legal,
            members[i].prefix, members[i].prefix, name, knob->value);
        return;
    }
}

/* A knob must be legal for every member to which it applies. */
static int check_knob(const struct smelt__spec *spec, const struct smelt__knob *knob,
                      struct smelt__message *message) {
    for (int i = 0; i < spec->schema->member_count; i++) {
        const int key = smelt__knob_for(spec, knob, i);
        const struct smelt__schema *member = spec->schema->members[i].schema;
        if (key >= 0 && check_key(spec->schema->name, &member->keys[key], knob->value, message)) {
            explain_members(spec, knob, i, message);
            return -1;
        }
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
    for (int i = 0; i < schema->key_count; i++)
        if (smelt__check_only_with(spec, schema->keys[i].name, spec->values[i], message))
            return -1;
    for (int i = 0; i < spec->knob_count; i++)
        if (check_knob(spec, &spec->knobs[i], message))
            return -1;
    if (smelt__spec_print_masked(spec, UINT32_MAX, text, sizeof text) >= sizeof text)
        return smelt__message_set(message, "%s: the spec's text is too long: at most %d characters",
                                  schema->name, SMELT__SPEC_TEXT - 1);
    return schema->check ? schema->check(spec, message) : 0;
}
