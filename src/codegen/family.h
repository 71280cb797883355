/*
 * Families: operators and the kernels that they expand to. A family is a table: its keys (spec.h),
 * and
 *   - of an operator: its passes, its kernels' families, which of them each pass expands to, what
 *     the presets ask of it;
 *   - of a kernel: its variants, each with a plan function and the knobs that are its own.
 */
#ifndef SMELT_CODEGEN_FAMILY_H
#define SMELT_CODEGEN_FAMILY_H

#include "codegen/arch.h"
#include "codegen/plan/plan.h"
#include "codegen/spec/spec.h"

enum {
    SMELT__MAX_TRIES = 8,
    SMELT__MAX_KERNELS = 64 /* an operator expands to at most so many, all passes together */
};

/* The kernels of an operator, pass after pass, each in launch order. */
struct smelt__expansion {
    struct smelt__spec kernels[SMELT__MAX_KERNELS];
    unsigned char pass[SMELT__MAX_KERNELS];
    int count;
    int overflow; /* 1: there were more */
};

/* What one preset asks of an operator: "heads=64,dqk=576", of the whole model. */
struct smelt__preset_row {
    const char *preset; /* NULL ends the table */
    const char *keys;
};

/* One way to build a family's kernels. */
struct smelt__variant {
    const char *name; /* the value of the knob `variant`; NULL ends the table */
    int (*plan)(const struct smelt__spec *spec, const struct smelt__arch *arch,
                struct smelt__plan *plan, struct smelt__message *message);
    const char *const *knobs; /* that not all variants have: NULL-terminated, or NULL */
};

/* Values of a knob that tuning tries. They need not be legal for every spec. */
struct smelt__tried {
    const char *name; /* NULL ends the table */
    int only_named;   /* 1: when the user names it, since its best value depends on the data */
    int count, values[SMELT__MAX_TRIES];
};

struct smelt__family {
    struct smelt__schema schema;
    const char *summary; /* one line: what it computes */

    /* Operators only. */
    unsigned passes;                            /* it has */
    const struct smelt__family *const *kernels; /* families it expands to, ended by NULL */
    void (*expand)(const struct smelt__spec *spec, unsigned pass,
                   struct smelt__expansion *expansion);
    const struct smelt__preset_row *presets;
    int training; /* 1: training alone needs it: a preset's forward pass is without it */

    /* Kernels only. With several variants, the best first: a plan is that of the first which takes
     * the spec and its knobs, unless the spec names one. */
    const struct smelt__variant *variants;
    /* What tuning tries of its knobs; NULL: there is nothing to tune. */
    const struct smelt__tried *tried;
};

static inline int smelt__is_operator(const struct smelt__family *family) {
    return family->expand != NULL;
}

/* ---- the registry ---------------------------------------------------------------------------- */

/* Each operator (the root's meson.build lists them), and behind it the families of its kernels
 * that none before it has. Number `index`, NULL past the end; the family of a name, or NULL with a
 * message naming the known ones and the nearest; the family that a spec is of. */
const struct smelt__family *smelt__family_at(int index);
const struct smelt__family *smelt__family_find(const char *name, struct smelt__message *message);
const struct smelt__family *smelt__family_of(const struct smelt__spec *spec);

/* Parses text and checks it. 0, or -1 with a message that names the key, what is legal and, for a
 * misspelt name, the nearest one. Text longer than SMELT__SPEC_TEXT - 1 is refused. */
int smelt__spec_parse(const char *text, struct smelt__spec *spec, struct smelt__message *message);

/* ---- operators to kernels -------------------------------------------------------------------- */

/* The passes an operator's spec asks for, by its key `passes`; all it has without such a key. */
unsigned smelt__spec_passes(const struct smelt__spec *spec);

/* smelt__spec_check, and of an operator the same of every kernel that the passes it has expand to:
 * so a knob's value that only a kernel can judge is refused with the spec. */
int smelt__spec_check_all(const struct smelt__spec *spec, struct smelt__message *message);

/* The kernels of those passes of an operator, each checked; of a kernel itself. 0, or -1 with a
 * message: a pass the operator has not, too many kernels, a knob that one of them refuses. */
int smelt__spec_expand(const struct smelt__spec *spec, struct smelt__expansion *expansion,
                       struct smelt__message *message);

/* For `expand`: the next kernel, with what its operator hands on to member number `member`, to be
 * changed by the caller; a spare one, dropped afterwards, when there are too many. */
struct smelt__spec *smelt__expansion_add(struct smelt__expansion *expansion,
                                         const struct smelt__spec *spec, int member, unsigned pass);

/* The same for a kernel that is no member: it has its defaults. */
struct smelt__spec *smelt__expansion_add_other(struct smelt__expansion *expansion,
                                               const struct smelt__family *family, unsigned pass);

/* ---- kernels to plans ------------------------------------------------------------------------ */

/* Plans a kernel; refuses operators. 0, or -1 with the reason. */
int smelt__plan_make(const struct smelt__spec *spec, const struct smelt__arch *arch,
                     struct smelt__plan *plan, struct smelt__message *message);

/* The same with a tuning entry's knobs ("key=value,...", NULL or "": none) where the spec leaves
 * the choice: what the spec names wins, key by key. -1 also when those knobs are not legal (any
 * more); the caller then plans without them. plan->spec knows which knobs are the entry's. */
int smelt__plan_make_tuned(const struct smelt__spec *spec, const struct smelt__arch *arch,
                           const char *tuned_knobs, struct smelt__plan *plan,
                           struct smelt__message *message);

#endif
