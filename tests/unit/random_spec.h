/* Random legal specs of any family, drawn from its table of keys. */
#pragma once

#include <stdio.h>
#include <string.h>

#include "codegen/family.h"
#include "codegen/spec/keys.h"
#include "codegen/spec/knobs.h"
#include "random.h"

static inline int64_t random_value(struct random *random, const struct smelt__key *key) {
    if (key->choices) {
        int count = 0;
        while (key->choices[count])
            count++;
        return random_below(random, count);
    }
    if (key->values)
        return key->values[random_below(random, key->value_count)];
    int64_t span = key->maximum - key->minimum + 1;
    int64_t value = key->minimum + (int64_t)(random_next(random) % (uint64_t)span);
    switch (random_below(random, 4)) {
    case 0: /* small numbers are common */
        value = key->minimum + random_below(random, span < 16 ? (int)span : 16);
        break;
    case 1: /* a power of two */
        value = INT64_C(1) << random_below(random, 21);
        break;
    case 2: /* a multiple of 16 or 64 */
        value = random_below(random, 2) ? value / 16 * 16 : value / 64 * 64;
        break;
    default:
        break;
    }
    return value < key->minimum || value > key->maximum ? key->maximum : value;
}

/* A list: usually none, or auto, or ascending numbers. */
static inline void random_list(struct random *random, const struct smelt__key *key, int index,
                               struct smelt__spec *spec) {
    int count = random_below(random, 2) ? 0 : random_below(random, SMELT__MAX_LIST + 1);
    spec->values[index] = random_below(random, 8) ? count : SMELT__AUTO;
    int64_t last = key->minimum - 1;
    for (int i = 0; i < count; i++) {
        last += 1 + random_below(random, (int)(key->maximum / SMELT__MAX_LIST));
        spec->list[i] = (int)last;
    }
}

/* Adds an operator's knob with the name, if one of a few values is legal. */
static inline void random_knob(struct random *random, const char *name, struct smelt__spec *spec) {
    struct smelt__message message;
    for (int tries = 0; tries < 8; tries++) {
        struct smelt__spec with = *spec;
        struct smelt__knob knob;
        if (smelt__knob_find(spec->schema, name, &knob) || smelt__knob_at(&with, &knob))
            return;
        knob.value = (int)random_value(random, smelt__knob_key(spec->schema, &knob));
        if (smelt__knob_insert(&with, &knob) == 0 && !smelt__spec_check_all(&with, &message)) {
            *spec = with;
            return;
        }
    }
}

/* Knobs for all kernels of an operator, and sometimes one for a single kernel. */
static inline void random_knobs(struct random *random, struct smelt__spec *spec) {
    const struct smelt__key *key;
    for (int i = 0; (key = smelt__schema_knob(spec->schema, i)) != NULL; i++)
        if (random_below(random, 6) == 0)
            random_knob(random, key->name, spec);
    for (int i = 0; i < spec->schema->member_count; i++) {
        const struct smelt__member *member = &spec->schema->members[i];
        const struct smelt__key *one =
            &member->schema->keys[random_below(random, member->schema->key_count)];
        char name[80];
        if (!one->knob || random_below(random, 3) != 0)
            continue;
        snprintf(name, sizeof name, "%s.%s", member->prefix, one->name);
        random_knob(random, name, spec);
    }
}

/* Any family; any kernel family. */
static inline const struct smelt__schema *random_family(struct random *random) {
    int count = 0;
    while (smelt__schema_at(count))
        count++;
    return smelt__schema_at(random_below(random, count));
}

static inline const struct smelt__schema *random_kernel(struct random *random) {
    const struct smelt__schema *schema;
    do
        schema = random_family(random);
    while (smelt__operator_of(schema));
    return schema;
}

/* Required keys are drawn until the family's check accepts them. A kernel's knob is left to the
 * plan three times in four, else it gets one of a few values if that is legal. Passes have their
 * default, because not every operator has all. */
static inline struct smelt__spec random_spec(struct random *random,
                                             const struct smelt__schema *schema) {
    static const int widths[] = {64, 128, 256, 512};
    struct smelt__spec spec;
    struct smelt__message message;
    do {
        smelt__spec_init(&spec, schema);
        for (int i = 0; i < schema->key_count; i++)
            if (schema->keys[i].list)
                random_list(random, &schema->keys[i], i, &spec);
            else if (!schema->keys[i].knob && strcmp(schema->keys[i].name, "passes") != 0)
                spec.values[i] = random_value(random, &schema->keys[i]);
        /* Few random widths are legal for every family, and most are too large for the emulator. */
        if (smelt__spec_key(schema, "dv") >= 0) {
            const int odd = random_below(random, 4) == 0;
            const int dv =
                odd ? 16 * (1 + random_below(random, 20)) : widths[random_below(random, 4)];
            smelt__spec_set(&spec, "dv", dv);
            smelt__spec_set(
                &spec, "dqk",
                dv + (odd ? 16 * random_below(random, 7) : 64 * random_below(random, 2)));
        }
    } while (smelt__spec_check(&spec, &message));
    for (int i = 0; i < schema->key_count; i++) {
        if (!schema->keys[i].knob || random_below(random, 4) != 0)
            continue;
        for (int tries = 0; tries < 8; tries++) {
            spec.values[i] = random_value(random, &schema->keys[i]);
            if (!smelt__spec_check(&spec, &message))
                break;
            spec.values[i] = SMELT__AUTO;
        }
    }
    random_knobs(random, &spec);
    return spec;
}
