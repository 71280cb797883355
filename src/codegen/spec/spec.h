/*
 * Specs: what the user asks for, in memory and in their one canonical text form,
 * `family:key=value,...` (defaults left out, keys in the family's order). Pure; any thread.
 */
#ifndef SMELT_CODEGEN_SPEC_H
#define SMELT_CODEGEN_SPEC_H

#include <stdint.h>

#include "codegen/text.h"

enum {
    SMELT__MAX_KEYS = 24,
    SMELT__MAX_KERNELS = 16, /* an operator expands to at most so many */
    SMELT__MAX_LIST = 8,     /* numbers of a list */
    SMELT__SPEC_TEXT = 256   /* longest canonical text, NUL included */
};

/* A knob that was not given: the plan chooses. Never a legal value of a key. */
#define SMELT__AUTO INT64_MIN

/* One key of a family. Integer keys have a range (and may list further legal values through the
 * family's check); named keys have choices, whose index is the value; a list's value is how many
 * numbers it has, SMELT__AUTO for `auto`, 0 when it is left out. */
struct smelt__key {
    const char *name;
    const char *legal;   /* for messages and lists: "1..128 and multiples of 64 above" */
    const char *meaning; /* one line */
    int64_t minimum, maximum;
    int64_t default_value;      /* SMELT__AUTO for a knob */
    int required;               /* no default: must be given */
    int knob;                   /* overrides the plan */
    const char *const *choices; /* NULL-terminated names, or NULL for an integer key */
    int list;                   /* 1: ascending numbers of the range, "256/512", or auto */
};

struct smelt__family;

/* A plain value; copy it freely. values[i] belongs to family->keys[i]. */
struct smelt__spec {
    const struct smelt__family *family;
    int64_t values[SMELT__MAX_KEYS];
    uint32_t tuned;            /* bit i: values[i] is a tuning entry's, not the user's */
    int list[SMELT__MAX_LIST]; /* numbers of the family's list key, of which it has one at most */
};

/* Every key at its default, required ones at SMELT__AUTO. */
void smelt__spec_init(struct smelt__spec *spec, const struct smelt__family *family);

/* Parses text and checks it (ranges, then the family's own check). 0, or -1 with a message that
 * names the key, what is legal and, for a misspelt name, the nearest one. Text longer than
 * SMELT__SPEC_TEXT - 1 is refused. */
int smelt__spec_parse(const char *text, struct smelt__spec *spec, struct smelt__message *message);

/* Parses `key=value,...` into a spec whose family is set, refusing keys that are not knobs when
 * `knobs_only`. Does not run the family's check. */
int smelt__spec_parse_keys(const char *text, int knobs_only, struct smelt__spec *spec,
                           struct smelt__message *message);

/* Ranges, required keys, the text's length, then the family's check. */
int smelt__spec_check(const struct smelt__spec *spec, struct smelt__message *message);

/* Canonical text. Always fits: the check refuses what would not. Tuned knobs are in it; in the
 * second form they are not: what the user asked for. */
void smelt__spec_print(const struct smelt__spec *spec, char text[SMELT__SPEC_TEXT]);
void smelt__spec_print_asked(const struct smelt__spec *spec, char text[SMELT__SPEC_TEXT]);

/* The same without any knob: what a tuning entry is for. */
void smelt__spec_strip_knobs(const struct smelt__spec *spec, struct smelt__spec *stripped);

/* Takes over a tuning entry's knobs, those that `spec` leaves to the plan. `knobs`:
 * "key=value,...". 0, or -1 with a message and *spec untouched. Whether they are legal together a
 * plan tells. */
int smelt__spec_tune(struct smelt__spec *spec, const char *knobs, struct smelt__message *message);

/* The index of a key, or -1; and a key's value, which must exist. */
int smelt__spec_key(const struct smelt__family *family, const char *name);
int64_t smelt__spec_get(const struct smelt__spec *spec, const char *name);
void smelt__spec_set(struct smelt__spec *spec, const char *name, int64_t value);

/* The name in a NULL-terminated list nearest to `given` by edit distance (at most 3, and less than
 * half of the length), or NULL. */
const char *smelt__nearest_name(const char *given, const char *const *names);

#endif
