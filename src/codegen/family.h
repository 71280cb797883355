/*
 * The registry of kernel families and operators: one line each in family.c. A family is a table of
 * keys and a few pure functions.
 */
#ifndef SMELT_CODEGEN_FAMILY_H
#define SMELT_CODEGEN_FAMILY_H

#include "codegen/arch.h"
#include "codegen/plan/plan.h"
#include "codegen/spec/spec.h"

enum { SMELT__MAX_TRIES = 8 };

struct smelt__family {
    const char *name;
    const char *summary; /* one line: what it computes */
    const struct smelt__key *keys;
    int key_count;
    /* What ranges cannot say, for example which pairs of widths are legal. 0 or -1 with a message.
     */
    int (*check)(const struct smelt__spec *spec, struct smelt__message *message);
    /* Operators only: the kernels it needs, in launch order; returns their number. */
    int (*expand)(const struct smelt__spec *spec, struct smelt__spec kernels[SMELT__MAX_KERNELS]);
    /* Kernels only: see plan.h. 0 or -1 with the reason. */
    int (*plan)(const struct smelt__spec *spec, const struct smelt__arch *arch,
                struct smelt__plan *plan, struct smelt__message *message);
    /* Kernels with knobs worth tuning: the values of a knob that tuning tries, and how many. They
     * need not be legal for every spec. `named`: the user named the knobs to try, else 0 is the
     * answer for one whose best value depends on the data. */
    int (*tries)(const struct smelt__key *key, int named, int64_t values[SMELT__MAX_TRIES]);
};

extern const struct smelt__family smelt__sparse_attn;           /* operator */
extern const struct smelt__family smelt__sparse_attn_fwd;       /* kernel */
extern const struct smelt__family smelt__sparse_attn_partition; /* kernel */

/* Number `index` of the registry, NULL past the end; the family of a name, or NULL with a message
 * naming the known ones and the nearest. */
const struct smelt__family *smelt__family_at(int index);
const struct smelt__family *smelt__family_find(const char *name, struct smelt__message *message);

#endif
