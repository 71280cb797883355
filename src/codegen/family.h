/*
 * Families: operators and the kernels that they expand to. Each is a table: its schema with its keys
 * (spec.h), and
 *   - of an operator: its passes, its kernels' families, which of them each pass expands to, what
 *     the presets ask of it;
 *   - of kernels: their variants, each with a plan function. A knob's row says which have it.
 */
#pragma once

#include "codegen/arch.h"
#include "codegen/plan/plan.h"
#include "codegen/spec/spec.h"

enum {
    SMELT__MAX_KERNELS = 64 /* of an operator, all passes together */
};

/* The kernels of an operator, pass by pass, those of a pass in the order of launch. */
struct smelt__expansion {
    struct smelt__spec kernels[SMELT__MAX_KERNELS];
    unsigned char pass[SMELT__MAX_KERNELS];
    unsigned char role[SMELT__MAX_KERNELS];   /* by which src/ops finds it; unique in a pass */
    const char *variants[SMELT__MAX_KERNELS]; /* of their plans, once planned */
    /* A kernel is launched only if the kernel of this role in its pass has this variant; the latter must
     * not have a condition itself. */
    struct smelt__condition {
        int role;
        const char *variant; /* NULL: launched in any case */
    } conditions[SMELT__MAX_KERNELS];
    int count;
    int overflow; /* 1: there were more */
};

/* One preset's keys for an operator, of the whole model: "heads=64,dqk=576". */
struct smelt__preset_row {
    const char *preset; /* NULL ends the table */
    const char *keys;
};

/* One way to build a family's kernels. */
struct smelt__variant {
    const char *name; /* the value of the knob `variant`; NULL ends the table */
    int (*plan)(const struct smelt__spec *spec, const struct smelt__arch *arch,
                struct smelt__plan *plan, struct smelt__message *message);
};

/* Kernels that one plan function or more can build. A schema is the first member of both types of
 * family, so that a spec, which points to its schema, leads to its family. */
struct smelt__kernel_family {
    struct smelt__schema schema;
    /* Best first. Unless a spec names its variant, the first one that accepts the spec and its
     * knobs is planned. */
    const struct smelt__variant *variants;
};

#define SMELT__VARIANTS(...)                                                                       \
    .variants = (const struct smelt__variant[]) {                                                  \
        __VA_ARGS__, {                                                                             \
            NULL, NULL                                                                             \
        }                                                                                          \
    }

/* What a program asks for: its passes, and the kernels that each of them expands to. */
struct smelt__operator_family {
    struct smelt__schema schema;
    unsigned passes;                                   /* that it has */
    const struct smelt__kernel_family *const *kernels; /* families it expands to, ended by NULL */
    /* Adds a pass's kernels in the order of launch. NULL: to one kernel, of the first member, or of the
     * first family if there are no members. */
    void (*expand)(const struct smelt__spec *spec, unsigned pass,
                   struct smelt__expansion *expansion);
    const struct smelt__preset_row *presets;
    int training; /* 1: only training needs it, so a preset's forward pass leaves it out */
};

#define SMELT__FAMILIES(...)                                                                       \
    .kernels = (const struct smelt__kernel_family *const[]) {                                      \
        __VA_ARGS__, NULL                                                                          \
    }

/* ---- the registry ---------------------------------------------------------------------------- */

/* The operators, in families/STEM.c of each. */
#define OPERATOR(stem) extern const struct smelt__operator_family smelt__##stem;
#include "operators.list"
#undef OPERATOR

/* The schemas of each operator (include/smelt/operators.h lists them) and, after it, of its kernels'
 * families that no earlier operator has. Number `index`, NULL past the end; the schema of a name, or
 * NULL with a message naming the known ones and the nearest. */
const struct smelt__schema *smelt__schema_at(int index);
const struct smelt__schema *smelt__schema_find(const char *name, struct smelt__message *message);

/* The schema of the operator whose name or spec `text` is, or NULL with a message naming the
 * operators and the nearest. The keys of a spec are not looked at. */
const struct smelt__schema *smelt__operator_schema_find(const char *text,
                                                        struct smelt__message *message);

/* The operator, or the kernel family, whose first member the schema is; NULL if it is of the other
 * kind. */
static inline const struct smelt__operator_family *
smelt__operator_of(const struct smelt__schema *schema) {
    return schema->is_operator ? (const struct smelt__operator_family *)(const void *)schema : NULL;
}

static inline const struct smelt__kernel_family *
smelt__kernels_of(const struct smelt__schema *schema) {
    return schema->is_operator ? NULL : (const struct smelt__kernel_family *)(const void *)schema;
}

/* Parses and checks text. 0, or -1 with a message that names the key, its legal values and, for a
 * misspelt name, the nearest one. Text longer than SMELT__SPEC_TEXT - 1 is refused. */
int smelt__spec_parse(const char *text, struct smelt__spec *spec, struct smelt__message *message);

/* ---- operators to kernels -------------------------------------------------------------------- */

/* The passes of an operator's spec, from its key `passes`; without that key all. */
unsigned smelt__spec_passes(const struct smelt__spec *spec);

/* smelt__spec_check; for an operator also of every kernel that its passes expand to, so that a
 * knob's value that only a kernel can reject is rejected with the spec. */
int smelt__spec_check_all(const struct smelt__spec *spec, struct smelt__message *message);

/* The checked kernels of an operator's passes, for all architectures; a kernel expands to itself.
 * 0, or -1 with a message: a pass that the operator lacks, too many kernels, a knob that a kernel
 * rejects. */
int smelt__spec_expand(const struct smelt__spec *spec, struct smelt__expansion *expansion,
                       struct smelt__message *message);

/* Plans the kernels with `plan`, which returns 0 for success, records their variants, and drops kernels
 * whose condition does not hold, since no call launches them. Returns the first failure. */
int smelt__expansion_plan(struct smelt__expansion *expansion,
                          int (*plan)(void *user, const struct smelt__spec *spec,
                                      struct smelt__plan *plan),
                          void *user);

/* For `expand`: appends a kernel with the keys and knobs that member number `member` inherits, to
 * be changed by the caller; when there are too many kernels, a spare one that is dropped. */
struct smelt__spec *smelt__expansion_add(struct smelt__expansion *expansion,
                                         const struct smelt__spec *spec, int member, unsigned pass);

/* The same for a kernel that is not a member. It takes the operator's values for keys of the same name, and
 * `number` for its key `pass` if it has one. */
struct smelt__spec *smelt__expansion_add_other(struct smelt__expansion *expansion,
                                               const struct smelt__spec *spec,
                                               const struct smelt__kernel_family *family,
                                               int number, unsigned pass);

/* The same for a member or another kernel, and gives it a role (struct smelt__expansion). */
struct smelt__spec *smelt__expansion_add_role(struct smelt__expansion *expansion,
                                              const struct smelt__spec *spec, unsigned pass,
                                              int role, const struct smelt__kernel_family *family,
                                              int number);

/* Gives the kernel that was added last a role. Without this call its role is 0 if it is the first kernel of its
 * pass, else one more than the role of the pass's kernel before it. */
void smelt__expansion_role(struct smelt__expansion *expansion, int role);

/* Gives the kernel that was added last a condition (struct smelt__condition): it is launched only if the
 * kernel of role `role` in its pass has this variant. */
void smelt__expansion_only_if(struct smelt__expansion *expansion, int role, const char *variant);

/* ---- kernels to plans ------------------------------------------------------------------------ */

/* Plans a kernel; refuses operators. 0, or -1 with the reason. */
int smelt__plan_make(const struct smelt__spec *spec, const struct smelt__arch *arch,
                     struct smelt__plan *plan, struct smelt__message *message);

/* The same with a tuning entry's knobs ("key=value,...", NULL or "": none) for keys that the spec
 * leaves to the plan. -1 also when those knobs are not legal (any more); the caller then plans
 * without them. plan->spec records which knobs are the entry's. */
int smelt__plan_make_tuned(const struct smelt__spec *spec, const struct smelt__arch *arch,
                           const char *tuned_knobs, struct smelt__plan *plan,
                           struct smelt__message *message);
