/*
 * Plans: every number that a kernel needs, in a printable plain struct. A pure function of kernel
 * spec, architecture and tuning entry. The constants become the source's prologue under the same
 * names; the regions are the shared-memory map, computed only here.
 */
#pragma once

#include "codegen/arch.h"
#include "codegen/spec/spec.h"
#include "codegen/text.h"

enum {
    SMELT__MAX_CONSTANTS = 96,
    SMELT__MAX_REGIONS = 32,
    SMELT__TEMPLATE_NAME = 64,
    SMELT__KERNEL_NAME = 128,
    SMELT__MAX_LAUNCH = 8,
    SMELT__DECLINED = 256 /* characters */
};

enum smelt__origin {
    SMELT__FROM_SPEC,   /* a key that defines the computation */
    SMELT__FROM_KNOB,   /* a knob given in the spec */
    SMELT__FROM_TUNING, /* a knob from a tuning entry */
    SMELT__FROM_RULE,   /* a knob that the plan chose */
    SMELT__DERIVED      /* computed from the others */
};

/* One named number: an enum constant in the source, a line in the printed plan. */
struct smelt__constant {
    const char *name; /* "BLOCK_KEYS" */
    int value;
    enum smelt__origin origin;
    const char *meaning; /* with its unit */
};

/* A region of the dynamic shared-memory arena; its offset is the constant `name`. */
struct smelt__region {
    const char *name; /* "QUERY_OFFSET" */
    int offset, bytes;
    const char *meaning;
};

struct smelt__plan {
    struct smelt__spec spec;
    const struct smelt__arch *arch;
    /* Set before the plan function runs, which may change the two names. */
    const char *variant; /* "mma"; in a family with the key `pass` that pass's name */
    char template_name[SMELT__TEMPLATE_NAME]; /* "sparse_attn_fwd.mma.cu", "indexer_loss_sum.cu" */
    char kernel_name[SMELT__KERNEL_NAME]; /* the function in the module: "smelt_indexer_loss_sum" */
    struct smelt__constant constants[SMELT__MAX_CONSTANTS];
    int constant_count;
    struct smelt__region regions[SMELT__MAX_REGIONS];
    int region_count;
    int threads;                   /* per block */
    int blocks_per_multiprocessor; /* the launch bound's second number */
    int max_registers;             /* per thread, by the launch bound */
    int spill_bytes;               /* per thread, that the assembler may spill; mostly 0 */
    int shared_bytes;              /* dynamic, the arena's size */
    /* The grid. With items (such as an operator's queries) a launch has blocks_per_item blocks for
     * each; without, the family's launch has its own rule. */
    const char *item; /* "query"; NULL: none */
    int blocks_per_item;
    int cluster;    /* blocks of a thread block cluster, along x; 0: no clusters */
    int persistent; /* 1: at most as many blocks as are resident at once, each of which loops over
                     * several blocks' work with grid stride */
    int contiguous; /* 1: a persistent block takes contiguous work instead */
    /* Values for the host code that launches the kernel: a struct of ints, which the family's header
     * defines (SMELT__PLAN_LAUNCH). All 0 in families without one. */
    int launch[SMELT__MAX_LAUNCH];
    /* Where the architecture has a better variant, whose plan function refused the spec: why. "": none.
     */
    char declined[SMELT__DECLINED];
    const char *defect; /* a fault of the plan function: the name added twice or beyond the
                         * capacity; NULL: none */
};

/* Defines the function `name`, which returns a plan's launch values as a struct `name`. */
#define SMELT__PLAN_LAUNCH(name)                                                                   \
    static inline const struct name *name(const struct smelt__plan *plan) {                        \
        _Static_assert(sizeof(struct name) <= sizeof plan->launch, "room");                        \
        return (const void *)plan->launch;                                                         \
    }

/* For plan functions (family.h): uses the template FAMILY.`variant`.cu instead of the plan's variant's. */
void smelt__plan_set_template(struct smelt__plan *plan, const char *variant);

/* For plan functions. Adding beyond the capacity, or a name twice, is recorded in
 * plan->defect and makes planning fail. */
void smelt__plan_add(struct smelt__plan *plan, const char *name, int value,
                     enum smelt__origin origin, const char *meaning);
/* Places a region of `bytes` at the next multiple of `alignment`; returns its offset. */
int smelt__plan_add_region(struct smelt__plan *plan, const char *name, int bytes, int alignment,
                           const char *meaning);

/* The origin of a key's value: the spec, a tuning entry, or the rule. */
enum smelt__origin smelt__plan_origin(const struct smelt__spec *spec, const char *key);

/* A row of a table of constants. */
struct smelt__plan_row {
    const char *name;
    const char *key; /* the spec's key that gives the value; NULL: the value is derived */
    int value;
    const char *meaning;
};
void smelt__plan_add_rows(struct smelt__plan *plan, const struct smelt__spec *spec,
                          const struct smelt__plan_row *rows, int count);

/* The same for rows that are written in braces. */
#define SMELT__PLAN_ADD(plan, spec, ...)                                                           \
    smelt__plan_add_rows(plan, spec, (const struct smelt__plan_row[]){__VA_ARGS__},                \
                         (int)(sizeof((const struct smelt__plan_row[]){__VA_ARGS__}) /             \
                               sizeof(struct smelt__plan_row)))

/* The value of a constant or a region's offset; 0 if there is none of that name (*found, which may
 * be NULL, tells). */
int smelt__plan_constant(const struct smelt__plan *plan, const char *name, int *found);

/* Text: everything; summary: the knobs, the shared-memory map and the launch, for the source's
 * banner; JSON: one object, what tools embed as "plan". */
void smelt__plan_print_text(const struct smelt__plan *plan, struct smelt__text *text);
void smelt__plan_print_summary(const struct smelt__plan *plan, struct smelt__text *text);
void smelt__plan_print_json(const struct smelt__plan *plan, struct smelt__text *text);
