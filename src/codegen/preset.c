/* See preset.h. */
#include "codegen/preset.h"

#include <inttypes.h>
#include <string.h>

#include "codegen/spec/names.h"

static const char *const names[] = {"glm-5.2",
                                    "glm-5.3-flash",
                                    "deepseek-v3.2",
                                    "deepseek-v4-flash",
                                    "deepseek-v4-pro",
                                    "deepseek-v4.1",
                                    "qwen3.8-flash-next",
                                    "minimax-m3",
                                    NULL};
enum { PRESET_COUNT = sizeof names / sizeof names[0] - 1 };

const char *smelt__preset_at(int index) {
    return index >= 0 && index < PRESET_COUNT ? names[index] : NULL;
}

static int is_known(const char *name) {
    for (int i = 0; i < PRESET_COUNT; i++)
        if (strcmp(names[i], name) == 0)
            return 1;
    return 0;
}

/* Divides the keys that are split among ranks. */
static int divide(struct smelt__spec *spec, const char *preset, int tp,
                  struct smelt__message *message) {
    const int groups = smelt__spec_key(spec->schema, "groups");
    const int grouped = groups >= 0 && spec->values[groups] > 1;
    for (int i = 0; i < spec->schema->key_count; i++) {
        const struct smelt__key *key = &spec->schema->keys[i];
        if (key->divided == SMELT__NOT_DIVIDED ||
            (key->divided == SMELT__DIVIDED_WITH_GROUPS && !grouped))
            continue;
        if (key->divided != SMELT__DIVIDED_EVENLY && tp > spec->values[i] &&
            tp % spec->values[i] == 0) {
            spec->values[i] = 1;
            continue;
        }
        if (tp < 1 || spec->values[i] % tp != 0)
            return smelt__message_set(
                message, "%s: tp=%d is not legal; legal: a divisor of its %" PRId64 " %s", preset,
                tp, spec->values[i], key->name);
        spec->values[i] /= tp;
    }
    return 0;
}

/* Whether a preset for these passes (0: all) has the operator. */
static int is_wanted(const struct smelt__operator_family *family, unsigned passes) {
    return !passes || passes & (family->training ? SMELT__BACKWARD : family->passes);
}

/* Sets the wanted passes that the operator has. */
static void choose_passes(struct smelt__spec *spec, unsigned passes) {
    const unsigned chosen = smelt__operator_of(spec->schema)->passes & (passes ? passes : ~0U);
    if (chosen)
        smelt__spec_set(spec, "passes", (int64_t)chosen - 1);
}

static int expand_row(const struct smelt__operator_family *family,
                      const struct smelt__preset_row *row, int tp, unsigned passes,
                      struct smelt__spec *spec, struct smelt__message *message) {
    smelt__spec_init(spec, &family->schema);
    if (smelt__spec_parse_keys(row->keys, 0, spec, message) ||
        divide(spec, row->preset, tp, message))
        return -1;
    choose_passes(spec, passes);
    return smelt__spec_check(spec, message);
}

int smelt__preset_expand(const char *name, int tp, unsigned passes,
                         struct smelt__spec specs[SMELT__MAX_PRESET_SPECS],
                         struct smelt__message *message) {
    int count = 0;
    if (!is_known(name)) {
        smelt__name_unknown("", "preset", name, names, message);
        return -1;
    }
    for (int i = 0; smelt__schema_at(i); i++) {
        const struct smelt__operator_family *family = smelt__operator_of(smelt__schema_at(i));
        for (const struct smelt__preset_row *row = family ? family->presets : NULL;
             row && row->preset; row++) {
            if (strcmp(row->preset, name) != 0 || !is_wanted(family, passes))
                continue;
            if (count == SMELT__MAX_PRESET_SPECS)
                return smelt__message_set(message, "%s: more than %d operators", name,
                                          SMELT__MAX_PRESET_SPECS);
            if (expand_row(family, row, tp, passes, &specs[count++], message))
                return -1;
        }
    }
    return count;
}
