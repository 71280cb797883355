/*
 * The search for a configuration that fits. A family describes its configurations as axes of values,
 * the best first: the search goes through their combinations, the last axis fastest, leaves out what
 * the spec's knobs and the axes' rules exclude, and takes the first whose shared memory and registers
 * an architecture has. The values of the last axes may compete by cost instead.
 */
#pragma once

#include <stddef.h>

#include "codegen/plan/limits.h"

enum { SMELT__MOST_AXES = 8 };

/* A configuration: of ints; each family's file defines its own. */
struct smelt__choice;

/* A shape of a pipeline. */
struct smelt__pipeline_shape {
    int block_keys, stages;
};

/* An axis sets a field of the configuration. Its rule, which may be NULL, derives what follows from
 * this value and those of the axes before; 0: the value is not legal with them. */
struct smelt__axis {
    size_t field;     /* offset */
    const char *knob; /* whose value, if the spec has it, is the only one; NULL: none */
    int (*rule)(struct smelt__choice *choice);
    int count;
    const int *values;                          /* NULL: from 0 on, or shapes */
    const struct smelt__pipeline_shape *shapes; /* with the knobs block_keys and stages */
};

#define SMELT__AXIS(field_, knob_, rule_, ...)                                                     \
    {                                                                                              \
        .field = offsetof(struct smelt__choice, field_), .knob = (knob_), .rule = (rule_),         \
        .count = sizeof((const int[]){__VA_ARGS__}) / sizeof(int), .values = (const int[]) {       \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
/* The rows of a table of shapes; the indices of another table. */
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
    int threads, blocks; /* of a block; resident at once */
    int registers;       /* per thread */
};

struct smelt__search {
    const struct smelt__axis *axes;
    int count;
    int by_cost; /* of the axes: the last so many have no preferred values */
    void (*begin)(struct smelt__choice *choice,
                  const struct smelt__spec *spec); /* sets all of it */
    void (*add_regions)(const struct smelt__choice *choice, struct smelt__plan *plan);
    struct smelt__needs (*needs)(const struct smelt__choice *choice,
                                 const struct smelt__arch *arch);
    long (*cost)(const struct smelt__choice *choice); /* NULL: none are by cost */
    const char *less_shared, *less_registers, *legal; /* see smelt__misses_explain */
};

/* Finds a configuration, and adds its regions to the plan. 0: none fits. */
int smelt__search_find(const struct smelt__search *search, const struct smelt__spec *spec,
                       const struct smelt__arch *arch, struct smelt__choice *choice,
                       struct smelt__plan *plan, struct smelt__misses *misses);

/* The same: 0, or -1 with a message. */
int smelt__search_plan(const struct smelt__search *search, const struct smelt__spec *spec,
                       const struct smelt__arch *arch, struct smelt__choice *choice,
                       struct smelt__plan *plan, struct smelt__message *message);

/* Whether the spec leaves the knob to the rule or gives it this value. */
static inline int smelt__knob_allows(const struct smelt__spec *spec, const char *knob, int value) {
    return smelt__spec_knob(spec, knob, value) == value;
}
