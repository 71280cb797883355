/*
 * Specs: the user's request, in memory and in canonical text, `family:key=value,...` (without
 * defaults, keys in the schema's order). Pure; any thread.
 *
 * A schema lists a family's keys. An operator's also lists its members, the kernels that inherit
 * its knobs: a knob is given to all members that have it and belong to a pass of the spec
 * (`stages=2`), or to one (`fwd.stages=2`), and follows the operator's keys.
 */
#pragma once

#include <stdint.h>

#include "codegen/text.h"

enum {
    SMELT__MAX_KEYS = 24,
    SMELT__MAX_LIST = 8,   /* numbers of a list */
    SMELT__MAX_KNOBS = 24, /* in an operator's spec */
    SMELT__SPEC_TEXT = 256 /* longest canonical text, NUL included */
};

/* Passes: a set. The values are the public SMELT_PASS_...s. */
enum { SMELT__FORWARD = 1, SMELT__BACKWARD = 2, SMELT__PASSES = 2 };

/* A knob that was not given: the plan chooses it. Never a legal value. */
#define SMELT__AUTO INT64_MIN

/* How tensor parallelism divides a preset's key among the ranks. */
enum smelt__division {
    SMELT__NOT_DIVIDED,
    SMELT__DIVIDED_EVENLY,
    SMELT__DIVIDED_OR_SHARED,  /* if there are more ranks than units, several ranks share one */
    SMELT__DIVIDED_WITH_GROUPS /* the same if the key `groups` is above 1; else every rank has all */
};

/* One key of a schema, described by one row, which is written with the macros of keys.h. Legal are
 * its names, whose index is the value, else its numbers, else its range; the schema's check may
 * reject some of that. A list's value is its length, SMELT__AUTO for `auto`, 0 if absent. */
struct smelt__key {
    const char *name;
    const char *meaning;        /* one line */
    const char *legal;          /* for messages and lists: "auto, 2..4" */
    const char *const *choices; /* names, NULL-terminated, or NULL */
    const int *values;          /* numbers, ascending, or NULL */
    int value_count;
    int64_t minimum, maximum, step; /* a range; step 0: 1 */
    int64_t default_value;          /* SMELT__AUTO for a knob */
    int required;                   /* no default: must be given */
    int list;                       /* 1: ascending numbers of the range, "256/512", or auto */
    enum smelt__division divided;
    int knob; /* 1: overrides the plan; kernels only */
    /* Of a knob: */
    const char *variants;  /* that have it, "mma, sm90"; NULL: all */
    const char *only_with; /* values of another key with which it exists, "pass=rows, parts" */
    const char *fixed_in;  /* a variant that has but the value `fixed` for it; NULL: none */
    int fixed;
    int tuned;             /* 1: autotuning varies it */
    int only_named;        /* 1: only if the user names it: its best value depends on data */
    const int *candidates; /* that autotuning tries; NULL: all legal values */
    int candidate_count;
};

struct smelt__spec;

/* A kernel family that inherits an operator's knobs. */
struct smelt__member {
    const char *prefix; /* "fwd" */
    const struct smelt__schema *schema;
    unsigned passes; /* that use its kernels; 0: all of the operator's */
};

/* Of a schema: its tables of keys and of members. */
#define SMELT__KEYS(table) .keys = (table), .key_count = sizeof(table) / sizeof *(table)
#define SMELT__MEMBERS(table) .members = (table), .member_count = sizeof(table) / sizeof *(table)
#define SMELT__MEMBER(prefix, schema)                                                              \
    .members = (const struct smelt__member[]){{(prefix), (schema), 0}}, .member_count = 1

struct smelt__schema {
    const char *name;
    const char *summary;           /* one line: what it computes */
    int is_operator;               /* 1: of an operator's family, 0: of kernels */
    const char *example;           /* an operator's spec, as people use it */
    const struct smelt__key *keys; /* an operator's has no knobs */
    int key_count;
    const struct smelt__member *members; /* an operator's; a kernel has none */
    int member_count;
    /* Checks that ranges cannot express, for example legal pairs of widths. 0 or -1 with
     * a message. */
    int (*check)(const struct smelt__spec *spec, struct smelt__message *message);
};

/* A knob in an operator's spec: key number `key` of member number `member`, or for all members of
 * the first member that has a knob of that name. */
struct smelt__knob {
    signed char for_all;
    signed char member;
    short key;
    int value;
};

/* A plain value; copy it freely. values[i] belongs to schema->keys[i]. */
struct smelt__spec {
    const struct smelt__schema *schema;
    int64_t values[SMELT__MAX_KEYS];
    uint32_t tuned;            /* bit i: values[i] is a tuning entry's, not the user's */
    int list[SMELT__MAX_LIST]; /* numbers of the schema's list key, of which it has one at most */
    struct smelt__knob knobs[SMELT__MAX_KNOBS]; /* an operator's, in canonical order */
    int knob_count;
};

/* Every key at its default, required ones at SMELT__AUTO, no knobs. */
void smelt__spec_init(struct smelt__spec *spec, const struct smelt__schema *schema);

/* Parses `key=value,...` into an initialised spec, refusing keys that are not knobs when
 * `knobs_only`. Does not run the check. 0, or -1 with a message that names the key, what is legal
 * and, for a misspelt name, the nearest one. */
int smelt__spec_parse_keys(const char *text, int knobs_only, struct smelt__spec *spec,
                           struct smelt__message *message);

/* Copies text into a buffer that parsing modifies; -1 with a message for text that is longer than
 * SMELT__SPEC_TEXT - 1 or not printable, so that messages can quote any part of it. */
int smelt__spec_copy_text(const char *text, char copy[SMELT__SPEC_TEXT],
                          struct smelt__message *message);

/* Checks ranges, required keys, knobs against each member to which they apply, the text's length,
 * then runs the schema's check. */
int smelt__spec_check(const struct smelt__spec *spec, struct smelt__message *message);

/* For checks and plan functions: sets the message to "NAME: " and this text, NAME being the family's. Returns -1. */
__attribute__((format(printf, 3, 4))) int smelt__spec_refuse(const struct smelt__spec *spec,
                                                             struct smelt__message *message,
                                                             const char *format, ...);

/* Canonical text, which always fits after the check. smelt__spec_print includes tuned knobs, the
 * second function omits them and so prints the user's request. */
void smelt__spec_print(const struct smelt__spec *spec, char text[SMELT__SPEC_TEXT]);
void smelt__spec_print_asked(const struct smelt__spec *spec, char text[SMELT__SPEC_TEXT]);

/* One key with its value, "sink=1". */
void smelt__spec_print_key(const struct smelt__spec *spec, const char *key,
                           char text[SMELT__SPEC_TEXT]);

/* Its knobs alone, as smelt__spec_parse_keys takes them; "" when it names none. */
void smelt__spec_print_knobs(const struct smelt__spec *spec, char text[SMELT__SPEC_TEXT]);

/* The spec without knobs, as tuning entries name it. */
void smelt__spec_strip_knobs(const struct smelt__spec *spec, struct smelt__spec *stripped);

/* Applies a tuning entry's knobs ("key=value,...") where a kernel's spec leaves the choice to the
 * plan. 0, or -1 with a message and *spec unchanged. Whether they are legal together is up to the
 * plan. */
int smelt__spec_tune(struct smelt__spec *spec, const char *knobs, struct smelt__message *message);

/* Gives a kernel's spec an operator's values of keys of the same name. */
void smelt__spec_inherit_keys(const struct smelt__spec *spec, struct smelt__spec *kernel);

/* The spec of one of an operator's members: keys of the same name, then knobs for all if the member
 * belongs to a pass of the spec, then knobs for this member. *kernel: initialised with the member's
 * schema. */
void smelt__spec_inherit(const struct smelt__spec *spec, int member, struct smelt__spec *kernel);

/* The index of a key, or -1; a key's value, SMELT__AUTO without such a key; setting a key, which
 * does nothing without it. */
int smelt__spec_key(const struct smelt__schema *schema, const char *name);
int64_t smelt__spec_get(const struct smelt__spec *spec, const char *name);
void smelt__spec_set(struct smelt__spec *spec, const char *name, int64_t value);

/* A kernel's knob as a number; `otherwise` if it is left to the plan. */
int smelt__spec_knob(const struct smelt__spec *spec, const char *name, int otherwise);
