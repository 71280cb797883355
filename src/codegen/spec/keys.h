/* Rows of a table of keys (spec.h), by kind. Strings are literals. */
#ifndef SMELT_CODEGEN_KEYS_H
#define SMELT_CODEGEN_KEYS_H

#include "codegen/spec/spec.h"

#define SMELT__KEY(key, legal_, meaning_, from, to)                                                \
    .name = (key), .legal = (legal_), .meaning = (meaning_), .minimum = (from), .maximum = (to)

/* Required. */
#define SMELT__REQUIRED(key, legal, meaning, from, to)                                             \
    { SMELT__KEY(key, legal, meaning, from, to), .default_value = SMELT__AUTO, .required = 1 }
/* Required, and divided among tensor-parallel ranks. */
#define SMELT__DIVIDED(key, legal, meaning, from, to)                                              \
    {                                                                                              \
        SMELT__KEY(key, legal, meaning, from, to), .default_value = SMELT__AUTO, .required = 1,    \
                                                   .divided = 1                                    \
    }
/* Optional, with a numeric default. */
#define SMELT__OPTIONAL(key, legal, meaning, from, to, value)                                      \
    { SMELT__KEY(key, legal, meaning, from, to), .default_value = (value) }
/* Optional, with named values. */
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

/* For a schema's check: refuses a key's value with its legal values; returns -1. */
int smelt__refuse_value(const struct smelt__spec *spec, const char *key,
                        struct smelt__message *message);
/* Checks a key with a list of legal values (SMELT__AUTO is legal, too). 0, or -1 with a message. */
int smelt__check_one_of(const struct smelt__spec *spec, const char *key, const int *legal,
                        int count, struct smelt__message *message);

/* The key `passes` of an operator with several passes: its value is the set minus one. */
extern const char *const smelt__pass_choices[];
#define SMELT__PASSES_KEY                                                                          \
    SMELT__NAMED("passes", "forward, backward, both", "what the operator is made for",             \
                 smelt__pass_choices, 0)

#endif
