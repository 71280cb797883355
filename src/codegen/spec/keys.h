/* Rows of a table of keys (spec.h): { kind, legal values, what else a knob's row says }. From a row
 * follow parsing, checks, lists and tuning's candidates. Strings are literals. */
#pragma once

#include "codegen/spec/spec.h"

/* ---- kinds ------------------------------------------------------------------------------------ */

#define SMELT__KEY(key, what) .name = (key), .meaning = (what)
/* Must be given. */
#define SMELT__REQUIRED(key, what)                                                                 \
    SMELT__KEY(key, what), .default_value = SMELT__AUTO, .required = 1
/* The same, and divided among tensor-parallel ranks. */
#define SMELT__DIVIDED(key, what) SMELT__REQUIRED(key, what), .divided = SMELT__DIVIDED_EVENLY
/* The same; if there are more ranks than units, several ranks share one. */
#define SMELT__SHARED(key, what) SMELT__REQUIRED(key, what), .divided = SMELT__DIVIDED_OR_SHARED
/* Its default is 0, or the first name. */
#define SMELT__OPTIONAL(key, what) SMELT__KEY(key, what)
/* Ascending numbers. */
#define SMELT__LIST(key, what) SMELT__KEY(key, what), .list = 1
/* Overrides the plan. */
#define SMELT__KNOB(key, what) SMELT__KEY(key, what), .default_value = SMELT__AUTO, .knob = 1

/* ---- legal values: of a key, and with `auto` of a knob ----------------------------------------- */

#define SMELT__VALUES(text, ...)                                                                   \
    .legal = text #__VA_ARGS__, .values = (const int[]){__VA_ARGS__},                              \
    .value_count = sizeof((const int[]){__VA_ARGS__}) / sizeof(int)
#define SMELT__INTERVAL(text, from, to) .legal = (text), .minimum = (from), .maximum = (to)
#define SMELT__CHOICES(...)                                                                        \
    .choices = (const char *const[]) {                                                             \
        __VA_ARGS__, NULL                                                                          \
    }

#define SMELT__ONE_OF(...) SMELT__VALUES("", __VA_ARGS__)
#define SMELT__RANGE(from, to) SMELT__INTERVAL(#from ".." #to, from, to)
/* A range of which the schema's check rejects some. */
#define SMELT__SOME_OF(text, from, to) SMELT__INTERVAL(text, from, to)
#define SMELT__NAMES_2(a, b) .legal = #a ", " #b, SMELT__CHOICES(#a, #b)
#define SMELT__NAMES_3(a, b, c) .legal = #a ", " #b ", " #c, SMELT__CHOICES(#a, #b, #c)
#define SMELT__NAMES_4(a, b, c, d)                                                                 \
    .legal = #a ", " #b ", " #c ", " #d, SMELT__CHOICES(#a, #b, #c, #d)
#define SMELT__NAMES_5(a, b, c, d, e)                                                              \
    .legal = #a ", " #b ", " #c ", " #d ", " #e, SMELT__CHOICES(#a, #b, #c, #d, #e)

#define SMELT__AUTO_ONE_OF(...) SMELT__VALUES("auto, ", __VA_ARGS__)
#define SMELT__AUTO_RANGE(from, to) SMELT__INTERVAL("auto, " #from ".." #to, from, to)
#define SMELT__STEPS(from, to, by)                                                                 \
    SMELT__INTERVAL(#from ".." #to " in steps of " #by, from, to), .step = (by)
#define SMELT__AUTO_STEPS(from, to, by)                                                            \
    SMELT__INTERVAL("auto, " #from ".." #to " in steps of " #by, from, to), .step = (by)
#define SMELT__AUTO_NAMES_2(a, b) .legal = "auto, " #a ", " #b, SMELT__CHOICES(#a, #b)
/* A variant has but one of the values. */
#define SMELT__FIXED(variant, value) .fixed_in = #variant, .fixed = (value)
#define SMELT__AUTO_RANGE_FIXED(variant, value, from, to)                                          \
    SMELT__INTERVAL("auto, " #from ".." #to "; " #variant ": " #value, from, to),                  \
        SMELT__FIXED(variant, value)
#define SMELT__AUTO_ONE_OF_FIXED(variant, value, ...)                                              \
    .legal = "auto, " #__VA_ARGS__ "; " #variant ": " #value,                                      \
    .values = (const int[]){__VA_ARGS__},                                                          \
    .value_count = sizeof((const int[]){__VA_ARGS__}) / sizeof(int), SMELT__FIXED(variant, value)

/* ---- autotuning candidates: all legal values, or some ------------------------------------------ */

#define SMELT__TUNED .tuned = 1
#define SMELT__TUNED_AT(...)                                                                       \
    .tuned = 1, .candidates = (const int[]){__VA_ARGS__},                                          \
    .candidate_count = sizeof((const int[]){__VA_ARGS__}) / sizeof(int)

/* ---- rows that several families have ----------------------------------------------------------- */

/* A family with the variants mma and sm90. */
#define SMELT__VARIANT_KNOB                                                                        \
    SMELT__KNOB("variant", "which instructions the kernel is built on"),                           \
        SMELT__AUTO_NAMES_2(mma, sm90)
enum smelt__orientation { SMELT__HEADS_AS_ROWS = 0, SMELT__KEYS_AS_ROWS };
#define SMELT__ORIENTATION_KNOB                                                                    \
    SMELT__KNOB("orientation", "the rows of the score matrix"), SMELT__AUTO_NAMES_2(heads, keys),  \
        .variants = "sm90"
#define SMELT__RACECHECK_KNOB                                                                      \
    SMELT__KNOB("racecheck", "1: for compute-sanitizer, every lane arrives at barriers"),          \
        SMELT__AUTO_ONE_OF(0, 1), .variants = "sm90"
/* The passes of an operator with several: its value is the set minus one. */
#define SMELT__PASSES_KEY                                                                          \
    SMELT__OPTIONAL("passes", "the passes to compile"), SMELT__NAMES_3(forward, backward, both)
#define SMELT__DETERMINISTIC_KEY                                                                   \
    SMELT__OPTIONAL("deterministic", "1: the backward pass gives the same bits in every run"),     \
        SMELT__ONE_OF(0, 1)
#define SMELT__SINK_KEY                                                                            \
    SMELT__OPTIONAL("sink", "1: a learnt logit per head in the softmax denominator"),              \
        SMELT__ONE_OF(0, 1)

/* ---- reading rows ------------------------------------------------------------------------------ */

/* Whether a value is among the row's legal ones; SMELT__AUTO is not. */
int smelt__key_takes(const struct smelt__key *key, int64_t value);

/* Number `index` of the legal values, ascending, or of the candidates: 0; -1: past the last. */
int smelt__key_value(const struct smelt__key *key, int index, int64_t *value);
int smelt__key_candidate(const struct smelt__key *key, int index, int64_t *value);

/* Whether a name is one of "name, name, ...". */
int smelt__name_listed(const char *list, const char *name);

/* The name of a named key's value. */
const char *smelt__spec_choice(const struct smelt__spec *spec, const char *key);

/* ---- for checks --------------------------------------------------------------------------------- */

/* Refuses a key's value with its legal values; returns -1. */
int smelt__refuse_value(const struct smelt__spec *spec, const char *key,
                        struct smelt__message *message);

/* Refuses knobs in the spec that exist only with other values of `key` (only_with). The spec's
 * check calls it for keys that are given, plan functions for those that they choose. 0, or -1 with
 * a message. */
int smelt__check_only_with(const struct smelt__spec *spec, const char *key, int64_t value,
                           struct smelt__message *message);

/* Leaves such knobs to the plan, for every key of the spec. */
void smelt__drop_only_with(struct smelt__spec *spec);
