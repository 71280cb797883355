/* Random legal specs of any family, drawn from its table of keys. */
#ifndef SMELT_TESTS_RANDOM_SPEC_H
#define SMELT_TESTS_RANDOM_SPEC_H

#include "codegen/family.h"
#include "random.h"

static inline int64_t random_value(struct random *random, const struct smelt__key *key) {
    if (key->choices) {
        int count = 0;
        while (key->choices[count])
            count++;
        return random_below(random, count);
    }
    int64_t span = key->maximum - key->minimum + 1;
    int64_t value = key->minimum + (int64_t)(random_next(random) % (uint64_t)span);
    switch (random_below(random, 4)) {
    case 0: /* small ones are the common ones */
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

/* A list: none most often, or auto, or ascending numbers. */
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

/* What must be given is drawn until the family's check agrees; a knob is left to the plan three
 * times in four, else given one of a few values if the check agrees. */
static inline struct smelt__spec random_spec(struct random *random,
                                             const struct smelt__family *family) {
    static const int widths[] = {64, 128, 256, 512};
    struct smelt__spec spec;
    struct smelt__message message;
    do {
        smelt__spec_init(&spec, family);
        for (int i = 0; i < family->key_count; i++)
            if (family->keys[i].list)
                random_list(random, &family->keys[i], i, &spec);
            else if (!family->keys[i].knob)
                spec.values[i] = random_value(random, &family->keys[i]);
        /* Pairs of widths are too rare to be met by chance. */
        if (smelt__spec_key(family, "dv") >= 0) {
            int dv = widths[random_below(random, 4)];
            smelt__spec_set(&spec, "dv", dv);
            smelt__spec_set(&spec, "dqk", dv + 64 * random_below(random, 2));
        }
    } while (smelt__spec_check(&spec, &message));
    for (int i = 0; i < family->key_count; i++) {
        if (!family->keys[i].knob || random_below(random, 4) != 0)
            continue;
        for (int tries = 0; tries < 8; tries++) {
            spec.values[i] = random_value(random, &family->keys[i]);
            if (!smelt__spec_check(&spec, &message))
                break;
            spec.values[i] = SMELT__AUTO;
        }
    }
    return spec;
}

#endif
