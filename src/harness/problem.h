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
    size_t elements; /* gaps included; 0: the tensor is not given */
};

struct smelt__problem {
    const struct smelt__harness_operator *op;
    const struct smelt__harness_pass *pass;
    void *spec;                            /* the operator's struct of keys */
    struct smelt__problem_options options; /* defaults filled in */
    int64_t extents[SMELT__MOST_SYMBOLS];  /* by the table's symbols */
    void *args; /* the pass's public struct: pointers to the inputs' host memory, outputs NULL;
                   packed tensors' strides are 0 */
    smelt_tensor layout[SMELT__MOST_TENSORS];          /* with all strides; data unused */
    struct smelt__buffer buffers[SMELT__MOST_TENSORS]; /* both by the table's rows */
    /* Set by the operator's `fill`: */
    uint8_t *listed;     /* [B*T] how often each query is computed; NULL: once. malloc'd */
    int64_t computed;    /* the sum of these */
    int64_t valid_slots; /* of the computed queries */
};

/* Makes a problem of a pass; everything in it belongs to it. 0, or -1 when memory runs out. */
int smelt__problem_create(struct smelt__problem *problem, const struct smelt__harness_operator *op,
                          const struct smelt__harness_pass *pass, const void *spec,
                          const struct smelt__problem_options *options);
void smelt__problem_destroy(struct smelt__problem *problem);

/* Upper bounds of a problem, found before its memory is allocated: the bytes of its tensors without
 * gaps, and the work of a launch in multiplications, of which the emulator does about a hundred
 * million per second. Both -1: out of memory. */
struct smelt__problem_cost {
    double bytes, work;
};
struct smelt__problem_cost smelt__problem_cost(const struct smelt__harness_operator *op,
                                               const struct smelt__harness_pass *pass,
                                               const void *spec,
                                               const struct smelt__problem_options *options);

/* Whether a problem is impossible, found before its memory is allocated: more valid slots than
 * lists have, or extents that `object`'s call of the pass refuses. 1 with the reason in `message`;
 * 0: no fault was found, or out of memory. */
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

/* The number of the first element of the row with these indices: one for each dimension except the
 * last, in order. Indices of dimensions that the tensor lacks are ignored. */
int64_t smelt__problem_at(const struct smelt__problem *problem, int tensor, int64_t i, int64_t k,
                          int64_t l);

/* The element of a query and a group in a tensor [T,G], or [T] of operators without groups. */
int64_t smelt__problem_of_group(const struct smelt__problem *problem, int tensor, int64_t query,
                                int64_t group);

/* The number of a tensor's rows: of its extents' product but the last. And the first element of row
 * `number`, which counts them in order. */
int64_t smelt__problem_rows(const struct smelt__problem *problem, int tensor);
int64_t smelt__problem_row(const struct smelt__problem *problem, int tensor, int64_t number);

/* Copies the problem's args struct into `args`, with all strides filled in. */
void smelt__problem_arguments(const struct smelt__problem *problem, void *args);

/* Host memory for a tensor. `far`: its pages are allocated on access, and zero. */
void *smelt__host_allocate(size_t bytes, int far);
void smelt__host_free(void *pointer, size_t bytes, int far);
