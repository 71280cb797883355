/*
 * A problem on the device, with uploaded inputs. Outputs have guard zones and are filled before
 * each run with values that no kernel computes, so that missing and stray writes are detected.
 * Outputs that a kernel adds to hold the problem's initial values instead. Tensors with gaps have
 * the smallest legal alignment.
 */
#pragma once

#include "harness/footprint.h"
#include "harness/problem.h"

struct smelt__device_buffer {
    unsigned char *allocation; /* device memory; an output has a guard before and after; NULL: not
                                  given */
    size_t bytes;              /* of the tensor, gaps included */
    size_t front;              /* bytes of the allocation before the tensor */
    unsigned char *host;       /* an output, downloaded with its guards; NULL before */
    int poison;                /* the byte that filled an output before the last run: see
                                  guards.h */
};

struct smelt__placed;

/* A test's hook. It receives the expected values of `count` elements of an output from element
 * `first` on, before rounding to its type. It may change the downloaded copy, which is compared
 * next. */
typedef void (*smelt__answer_function)(void *user, const struct smelt__placed *placed, int tensor,
                                       int64_t first, int64_t count, const double *expected);

struct smelt__placed {
    smelt_context *context;
    const struct smelt__problem *problem;
    const struct smelt__harness_pass *pass; /* the problem's; both remain valid after it is freed */
    int far;
    void *args; /* the problem's, with device pointers */
    struct smelt__device_buffer buffers[SMELT__MOST_TENSORS]; /* by the table's rows */
    struct smelt__device_buffer workspace; /* the largest requested so far; never downloaded */
    unsigned poisonings;
    struct smelt__footprints footprints; /* the inputs' only on the emulator */
    smelt__answer_function answer;       /* NULL: no hook */
    void *answer_user;
};

/* Uploads the inputs. Registers each tensor's name and forbidden bytes with the emulator, so later
 * changes of the arguments may only reduce the memory that they name. The problem must outlive
 * everything except launches. On failure everything is released and the failed call's status
 * returned. */
smelt_status smelt__placed_create(struct smelt__placed *placed, smelt_context *context,
                                  const struct smelt__problem *problem);
void smelt__placed_destroy(struct smelt__placed *placed);

/* Uploads the problem's inputs again, after the caller changed them on the host. */
smelt_status smelt__placed_refresh(struct smelt__placed *placed);

/* Recomputes footprints and forbidden bytes after the caller changed the problem's `listed`. */
smelt_status smelt__placed_survey(struct smelt__placed *placed);

/* Makes the workspace that an operator requests, between guards, and puts it into the arguments. A
 * larger one replaces the previous one, which no launch may still use. */
smelt_status smelt__placed_workspace(struct smelt__placed *placed, const smelt_operator *object);

/* Fills all outputs, their guards and the workspace with poison (guards.h), which differs from run
 * to run. */
smelt_status smelt__placed_poison(struct smelt__placed *placed);

/* Copies all outputs to the host; a second call reuses the memory. */
smelt_status smelt__placed_download(struct smelt__placed *placed);

/* Makes the workspace, poisons, launches on `stream`, waits and downloads. Clears the emulator's
 * earlier reports. */
smelt_status smelt__placed_run(struct smelt__placed *placed, const smelt_operator *object,
                               struct CUstream_st *stream);

/* The name of an input whose bytes on the device have changed; NULL: none, or *status is not OK. */
const char *smelt__placed_changed_input(const struct smelt__placed *placed, smelt_status *status);

/* The downloaded row of an output, by its indices as for smelt__problem_at; NULL if the output is
 * not given. */
const void *smelt__placed_row(const struct smelt__placed *placed, int tensor, int64_t i, int64_t k,
                              int64_t l);

/* From a given element on. */
const void *smelt__placed_element(const struct smelt__placed *placed, int tensor, int64_t element);

/* The same for a comparison; counts `count` elements as compared.
 * `expected`: their values before rounding to the output's type; for e4m3 the codes. */
const void *smelt__compared_row(const struct smelt__placed *placed, struct smelt__finding *finding,
                                int tensor, int64_t first, int64_t count, const double *expected);

/* The same for the row with these indices, as in smelt__problem_at. */
const void *smelt__compared_at(const struct smelt__placed *placed, struct smelt__finding *finding,
                               int tensor, int64_t i, int64_t k, int64_t count,
                               const double *expected);

/* A digest of all computed elements that have the same bits in every run. */
uint64_t smelt__placed_digest(const struct smelt__placed *placed);

/* The name of an output that differs between two runs of one problem although it has the same bits
 * in every run; NULL: none. */
const char *smelt__placed_difference(const struct smelt__placed *first,
                                     const struct smelt__placed *second);

/* Checks every downloaded byte. NULL if all computed elements are numbers and no other byte changed,
 * in the workspace's guards neither; else the kind of fault ("unwritten", "stray",
 * "workspace_guard"), with a message saying where. Overwrites the downloaded copy. */
const char *smelt__placed_verify_extent(struct smelt__placed *placed, char *message, size_t size);
