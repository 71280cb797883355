/*
 * Problems for checks and benchmarks: the arguments of one pass of an operator, made from a seed,
 * on the host. The same options give the same bytes with any number of processors.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "harness/operator.h"
#include "harness/options.h"

/* A tensor's memory on the host. */
struct smelt__buffer {
    void *host;      /* NULL: none; outputs that are overwritten have none */
    size_t elements; /* gaps included; 0: the tensor is not there */
};

struct smelt__problem {
    const struct smelt__harness_operator *op;
    const struct smelt__harness_pass *pass;
    void *spec;                            /* the operator's struct of keys */
    struct smelt__problem_options options; /* defaults filled in */
    int64_t extents[SMELT__MOST_SYMBOLS];  /* by the table's symbols */
    void *args; /* the pass's public struct: pointers to the inputs' host memory, outputs NULL;
                   packed tensors' strides are 0 */
    smelt_tensor layout[SMELT__MOST_TENSORS];          /* all strides given; data unused */
    struct smelt__buffer buffers[SMELT__MOST_TENSORS]; /* both by the table's rows */
    /* By the operator's `fill`. */
    uint8_t *listed;  /* [B*T] how often a query is to be computed; NULL: all are, once. malloc'd */
    int64_t computed; /* how many those are together */
    int64_t valid_slots; /* over them */
};

/* Fills in defaults. */
void smelt__problem_defaults(const struct smelt__harness_operator *op, const void *spec,
                             struct smelt__problem_options *options);

/* Makes a problem of a pass; everything in it belongs to it. 0, or -1 when memory runs out. */
int smelt__problem_create(struct smelt__problem *problem, const struct smelt__harness_operator *op,
                          const struct smelt__harness_pass *pass, const void *spec,
                          const struct smelt__problem_options *options);
void smelt__problem_destroy(struct smelt__problem *problem);

/* Whether a problem would be none, told before any of its memory is there: more valid slots than
 * lists have, or extents that the pass's call of `object` refuses. 1 with the reason in `message`;
 * 0: nothing is wrong with it, or memory ran out. */
int smelt__problem_refused(const struct smelt__harness_operator *op,
                           const struct smelt__harness_pass *pass, const void *spec,
                           const struct smelt__problem_options *options,
                           const smelt_operator *object, char *message, size_t size);

/* The host memory of a tensor, by its row in the table. */
static inline void *smelt__problem_data(const struct smelt__problem *problem, int tensor) {
    return problem->buffers[tensor].host;
}

/* Bytes of a tensor, gaps included. */
size_t smelt__problem_bytes(const struct smelt__problem *problem, int tensor);

/* The element number at which the row with these indices begins: one for each dimension but the
 * last, in order; what a tensor has not is not looked at. */
int64_t smelt__problem_at(const struct smelt__problem *problem, int tensor, int64_t i, int64_t k,
                          int64_t l);

/* The problem's args struct into `args`, of that size, with all strides given. */
void smelt__problem_arguments(const struct smelt__problem *problem, void *args);

/* Host memory for a tensor. `far`: its pages exist when touched, and are zero. */
void *smelt__host_allocate(size_t bytes, int far);
void smelt__host_free(void *pointer, size_t bytes, int far);
