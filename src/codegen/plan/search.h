/*
 * The search for a configuration that fits on an architecture. A family describes its configurations as
 * axes, each with its values in order of preference. The search tries the combinations, the last axis
 * varying fastest, without those that the spec's knobs or the axes' rules exclude, and takes the first
 * one with enough shared memory and registers. The last axes may have a cost instead of an order: of
 * their values the search takes the cheapest that fit.
 */
#pragma once

#include <stddef.h>

#include "codegen/plan/limits.h"

enum { SMELT__MOST_AXES = 8 };

/* A configuration: a struct of ints, which each family's file defines. */
struct smelt__choice;

struct smelt__pipeline_shape {
    int block_keys, stages;
};

/* An axis sets a field of the configuration. Its rule, which may be NULL, sets the fields that follow
 * from this value and those of the axes before it; it returns 0 if the value is not legal with them. */
struct smelt__axis {
    size_t field;     /* offset */
    const char *knob; /* if the spec has this knob, its value is the only one; NULL: no knob */
    int (*rule)(struct smelt__choice *choice);
    int count;
    const int *values;                          /* NULL: 0, 1, .. count - 1, or shapes */
    const struct smelt__pipeline_shape *shapes; /* with the knobs block_keys and stages */
};

#define SMELT__AXIS(field_, knob_, rule_, ...)                                                     \
    {                                                                                              \
        .field = offsetof(struct smelt__choice, field_), .knob = (knob_), .rule = (rule_),         \
        .count = sizeof((const int[]){__VA_ARGS__}) / sizeof(int), .values = (const int[]) {       \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
/* An axis whose values are the rows of a table of shapes, or the indices of any table. */
#define SMELT__AXIS_SHAPES(field_, rule_, table)                                                   \
    {                                                                                              \
        .field = offsetof(struct smelt__choice, field_), .rule = (rule_),                          \
        .count = sizeof(table) / sizeof *(table), .shapes = (table)                                \
    }
#define SMELT__AXIS_INDICES(field_, rule_, table)                                                  \
    {                                                                                              \
        .field = offsetof(struct smelt__choice, field_), .rule = (rule_),                          \
        .count = sizeof(table) / sizeof *(table)                                                   \
    }

struct smelt__needs {
    int threads, blocks; /* threads of a thread block; resident thread blocks */
    int registers;       /* per thread */
};

struct smelt__search {
    const struct smelt__axis *axes;
    int count;
    int by_cost; /* number of last axes whose values are chosen by cost */
    void (*begin)(struct smelt__choice *choice,
                  const struct smelt__spec *spec); /* initialises all fields */
    void (*add_regions)(const struct smelt__choice *choice, struct smelt__plan *plan);
    /* NULL: one resident thread block, among whose warps the plan function divides all registers. */
    struct smelt__needs (*needs)(const struct smelt__choice *choice,
                                 const struct smelt__arch *arch);
    long (*cost)(const struct smelt__choice *choice); /* NULL if by_cost is 0 */
    const char *less_shared, *less_registers, *legal; /* see smelt__excess_explain */
};

#define SMELT__AXES(table) .axes = (table), .count = sizeof(table) / sizeof *(table)

/* Finds a configuration, and adds its regions to the plan. 0: none fits. */
int smelt__search_find(const struct smelt__search *search, const struct smelt__spec *spec,
                       const struct smelt__arch *arch, struct smelt__choice *choice,
                       struct smelt__plan *plan, struct smelt__excess *excess);

/* The same, but returns 0, or -1 with a message. */
int smelt__search_plan(const struct smelt__search *search, const struct smelt__spec *spec,
                       const struct smelt__arch *arch, struct smelt__choice *choice,
                       struct smelt__plan *plan, struct smelt__message *message);

/* Whether the spec leaves the knob to the rule or gives it this value. */
static inline int smelt__knob_allows(const struct smelt__spec *spec, const char *knob, int value) {
    return smelt__spec_knob(spec, knob, value) == value;
}
