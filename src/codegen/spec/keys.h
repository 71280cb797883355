/* Rows of a table of keys (spec.h), by kind. Strings are literals. */
#ifndef SMELT_CODEGEN_KEYS_H
#define SMELT_CODEGEN_KEYS_H

#include "codegen/spec/spec.h"

#define SMELT__KEY(key, legal_, meaning_, from, to)                                                \
    .name = (key), .legal = (legal_), .meaning = (meaning_), .minimum = (from), .maximum = (to)

/* Must be given. */
#define SMELT__REQUIRED(key, legal, meaning, from, to)                                             \
    { SMELT__KEY(key, legal, meaning, from, to), .default_value = SMELT__AUTO, .required = 1 }
/* Must be given, and is divided among tensor-parallel ranks. */
#define SMELT__DIVIDED(key, legal, meaning, from, to)                                              \
    {                                                                                              \
        SMELT__KEY(key, legal, meaning, from, to), .default_value = SMELT__AUTO, .required = 1,    \
                                                   .divided = 1                                    \
    }
/* Has a default, a number. */
#define SMELT__OPTIONAL(key, legal, meaning, from, to, value)                                      \
    { SMELT__KEY(key, legal, meaning, from, to), .default_value = (value) }
/* Has a default, and values with names. */
#define SMELT__NAMED(key, legal, meaning, names, value)                                            \
    { SMELT__KEY(key, legal, meaning, 0, 0), .default_value = (value), .choices = (names) }
#define SMELT__REQUIRED_NAME(key, legal, meaning, names)                                           \
    {                                                                                              \
        SMELT__KEY(key, legal, meaning, 0, 0), .default_value = SMELT__AUTO, .required = 1,        \
                                               .choices = (names)                                  \
    }
/* Ascending numbers. */
#define SMELT__LIST(key, legal, meaning, from, to)                                                 \
    { SMELT__KEY(key, legal, meaning, from, to), .list = 1 }
/* Overrides the plan. */
#define SMELT__KNOB(key, legal, meaning, from, to)                                                 \
    { SMELT__KEY(key, legal, meaning, from, to), .default_value = SMELT__AUTO, .knob = 1 }
#define SMELT__NAMED_KNOB(key, legal, meaning, names)                                              \
    {                                                                                              \
        SMELT__KEY(key, legal, meaning, 0, 0), .default_value = SMELT__AUTO, .knob = 1,            \
                                               .choices = (names)                                  \
    }

/* For a schema's check. Refuses a key's value with what is legal: -1. */
int smelt__refuse_value(const struct smelt__spec *spec, const char *key,
                        struct smelt__message *message);
/* A key with a few legal values within its range, or SMELT__AUTO: 0, or -1 with a message. */
int smelt__check_one_of(const struct smelt__spec *spec, const char *key, const int *legal,
                        int count, struct smelt__message *message);

/* The key of an operator that has several passes: values are the set less one. */
extern const char *const smelt__pass_choices[];
#define SMELT__PASSES_KEY                                                                          \
    SMELT__NAMED("passes", "forward, backward, both", "what the operator is made for",             \
                 smelt__pass_choices, 0)

#endif
