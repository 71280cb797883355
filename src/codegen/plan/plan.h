/*
 * Plans: every number a kernel needs, as a printable plain struct. A pure function of kernel spec,
 * architecture and tuning entry. The constants become the source's prologue, under the same names;
 * the regions are the shared-memory map, computed here and nowhere else.
 */
#ifndef SMELT_CODEGEN_PLAN_H
#define SMELT_CODEGEN_PLAN_H

#include "codegen/arch.h"
#include "codegen/spec/spec.h"
#include "codegen/text.h"

enum {
    SMELT__MAX_CONSTANTS = 96,
    SMELT__MAX_REGIONS = 32,
    SMELT__KERNEL_NAME = 128,
    SMELT__MAX_LAUNCH = 8
};

enum smelt__origin {
    SMELT__FROM_SPEC,   /* says what is computed */
    SMELT__FROM_KNOB,   /* a knob the spec names */
    SMELT__FROM_TUNING, /* a knob that a tuning entry names */
    SMELT__FROM_RULE,   /* a knob the plan chose */
    SMELT__DERIVED      /* follows from the others */
};

/* One named number: an enum constant in the source, a line in the printed plan. */
struct smelt__constant {
    const char *name; /* "BLOCK_KEYS" */
    int value;
    enum smelt__origin origin;
    const char *meaning; /* with its unit */
};

/* A piece of the dynamic shared-memory arena; its offset is the constant `name`. */
struct smelt__region {
    const char *name; /* "QUERY_OFFSET" */
    int offset, bytes;
    const char *meaning;
};

struct smelt__plan {
    struct smelt__spec spec;
    const struct smelt__arch *arch;
    const char *variant;                  /* "mma" */
    const char *template_name;            /* "sparse_attn_fwd.mma.cu" */
    char kernel_name[SMELT__KERNEL_NAME]; /* the function in the module */
    struct smelt__constant constants[SMELT__MAX_CONSTANTS];
    int constant_count;
    struct smelt__region regions[SMELT__MAX_REGIONS];
    int region_count;
    int threads;                   /* per block */
    int blocks_per_multiprocessor; /* the launch bound's second number */
    int max_registers;             /* per thread, what the launch bound leaves */
    int shared_bytes;              /* dynamic, the arena's size */
    /* The grid. With items (an operator's queries, say) a launch has blocks_per_item blocks for
     * each; without, the family's launch has a rule of its own. */
    const char *item; /* "query"; NULL: none */
    int blocks_per_item;
    int cluster;    /* blocks of a thread block cluster, along x; 0: no clusters */
    int persistent; /* 1: no more blocks than are resident at once; each does the work of several,
                       in a grid-stride loop */
    int contiguous; /* 1, of a persistent grid: of neighbours, instead */
    /* The values that host code needs to launch the kernel: a struct of ints. The family's header
     * defines the struct and the function that returns it. All 0 in families without one. */
    int launch[SMELT__MAX_LAUNCH];
    const char *defect; /* a mistake of the plan function: what was added twice or beyond the
                           capacity; NULL: none */
};

/* Used by families while planning (family.h). Adding past the capacity, or a name twice, is a
 * defect, which is noted in the plan and makes planning fail. */
void smelt__plan_add(struct smelt__plan *plan, const char *name, int value,
                     enum smelt__origin origin, const char *meaning);
/* Places a region of `bytes` at the next multiple of `alignment`; returns its offset. */
int smelt__plan_add_region(struct smelt__plan *plan, const char *name, int bytes, int alignment,
                           const char *meaning);

/* Where the value of a knob of the spec being planned comes from: the spec, a tuning entry, or the
 * rule, when it is left to the plan. */
enum smelt__origin smelt__plan_origin(const struct smelt__spec *spec, const char *knob);

/* One of a table of constants. */
struct smelt__plan_row {
    const char *name, *knob; /* knob: its key; NULL: derived */
    int value;
    const char *meaning;
};
void smelt__plan_add_rows(struct smelt__plan *plan, const struct smelt__spec *spec,
                          const struct smelt__plan_row *rows, int count);

/* A constant's or a region offset's value; 0 when there is none of that name (*found tells,
 * unless it is NULL). */
int smelt__plan_constant(const struct smelt__plan *plan, const char *name, int *found);

/* Text: everything; summary: the knobs, the shared-memory map and the launch, for the source's
 * banner; JSON: one object, what tools embed as "plan". */
void smelt__plan_print_text(const struct smelt__plan *plan, struct smelt__text *text);
void smelt__plan_print_summary(const struct smelt__plan *plan, struct smelt__text *text);
void smelt__plan_print_json(const struct smelt__plan *plan, struct smelt__text *text);

#endif
