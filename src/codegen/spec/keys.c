/* See keys.h: what follows from a row. */
#include "codegen/spec/keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int choice_count(const struct smelt__key *key) {
    int count = 0;
    while (key->choices[count])
        count++;
    return count;
}

int smelt__key_takes(const struct smelt__key *key, int64_t value) {
    if (key->choices)
        return value >= 0 && value < choice_count(key);
    for (int i = 0; i < key->value_count; i++)
        if (value == key->values[i])
            return 1;
    return !key->values && value >= key->minimum && value <= key->maximum &&
           (!key->step || (value - key->minimum) % key->step == 0);
}

int smelt__key_value(const struct smelt__key *key, int index, int64_t *value) {
    *value = key->choices  ? index
             : key->values ? (index < key->value_count ? key->values[index] : SMELT__AUTO)
                           : key->minimum + index * (key->step ? key->step : 1);
    return smelt__key_takes(key, *value) ? 0 : -1;
}

int smelt__key_candidate(const struct smelt__key *key, int index, int64_t *value) {
    if (!key->candidates)
        return key->tuned ? smelt__key_value(key, index, value) : -1;
    if (index >= key->candidate_count)
        return -1;
    *value = key->candidates[index];
    return 0;
}

int smelt__name_listed(const char *list, const char *name) {
    const size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += strspn(at, ", ");
        if (length && strncmp(at, name, length) == 0 && (at[length] == ',' || !at[length]))
            return 1;
    }
    return 0;
}

const char *smelt__spec_choice(const struct smelt__spec *spec, const char *key) {
    const int index = smelt__spec_key(spec->schema, key);
    return spec->schema->keys[index].choices[spec->values[index]];
}

/* ---- knobs that exist only with some values of another key --------------------------------------- */

/* Whether `only_with` excludes a value of key number `other`. */
static int excludes(const struct smelt__schema *schema, const struct smelt__key *knob, int other,
                    int64_t value) {
    const struct smelt__key *const key = &schema->keys[other];
    const size_t length = strlen(key->name);
    char text[32];
    if (!knob->only_with || value == SMELT__AUTO ||
        strncmp(knob->only_with, key->name, length) != 0 || knob->only_with[length] != '=')
        return 0;
    if (key->choices)
        snprintf(text, sizeof text, "%s", key->choices[value]);
    else
        snprintf(text, sizeof text, "%" PRId64, value);
    return !smelt__name_listed(knob->only_with + length + 1, text);
}

int smelt__check_only_with(const struct smelt__spec *spec, const char *key, int64_t value,
                           struct smelt__message *message) {
    const int other = smelt__spec_key(spec->schema, key);
    for (int i = 0; i < spec->schema->key_count; i++) {
        const struct smelt__key *const knob = &spec->schema->keys[i];
        if (spec->values[i] == SMELT__AUTO || !excludes(spec->schema, knob, other, value))
            continue;
        return smelt__spec_refuse(spec, message, "%s is a knob of %s alone; leave it out",
                                  knob->name, knob->only_with);
    }
    return 0;
}

void smelt__drop_only_with(struct smelt__spec *spec) {
    for (int i = 0; i < spec->schema->key_count; i++)
        for (int other = 0; other < spec->schema->key_count; other++)
            if (excludes(spec->schema, &spec->schema->keys[i], other, spec->values[other]))
                spec->values[i] = SMELT__AUTO;
}
