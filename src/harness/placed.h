/*
 * A problem on the device, with uploaded inputs. Outputs have guard zones, and before each run they
 * are filled with values that no kernel computes, so that missing and stray writes show. Outputs
 * that a kernel adds to hold the problem's initial values instead. Tensors with gaps begin at the
 * least alignment that is legal.
 */
#pragma once

#include "harness/footprint.h"
#include "harness/problem.h"

struct smelt__device_buffer {
    unsigned char *allocation; /* device: of an output guard, tensor, guard; NULL: not there */
    size_t bytes;              /* of the tensor, gaps included */
    size_t front;              /* bytes of the allocation before the tensor */
    unsigned char *host;       /* an output, downloaded with its guards; NULL before */
    int poison;                /* an output's bytes before the last run: see guards.h */
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
    const struct smelt__harness_pass *pass; /* the problem's; both stay when that is gone */
    int far;
    void *args; /* the problem's, with device pointers */
    struct smelt__device_buffer buffers[SMELT__MOST_TENSORS]; /* by the table's rows */
    struct smelt__device_buffer workspace; /* the largest asked for so far; never downloaded */
    unsigned poisonings;
    struct smelt__footprints footprints; /* of the inputs only on the emulator */
    smelt__answer_function answer;       /* NULL: no hook */
    void *answer_user;
};

/* Uploads, and registers with the emulator each tensor's name and its forbidden bytes: later
 * changes of the arguments may only narrow the memory that they name. The problem must outlive all but
 * launches. On failure everything is released and the status of the failing call returned. */
smelt_status smelt__placed_create(struct smelt__placed *placed, smelt_context *context,
                                  const struct smelt__problem *problem);
void smelt__placed_destroy(struct smelt__placed *placed);

/* Uploads the problem's inputs again, after the caller changed them on the host. */
smelt_status smelt__placed_refresh(struct smelt__placed *placed);

/* Derives anew what is to be computed and touched, after the caller changed what the problem says
 * of it (`listed`). */
smelt_status smelt__placed_survey(struct smelt__placed *placed);

/* Makes the workspace that an operator asks for, between guards, and names it in the arguments. A
 * larger one than before takes the place of that; nothing may be running in it. */
smelt_status smelt__placed_workspace(struct smelt__placed *placed, const smelt_operator *object);

/* Fills all outputs, their guards and the workspace with poison (guards.h), which changes from run
 * to run. */
smelt_status smelt__placed_poison(struct smelt__placed *placed);

/* Copies all outputs to the host; a second call reuses the memory. */
smelt_status smelt__placed_download(struct smelt__placed *placed);

/* Workspace, poison, launch on `stream`, wait, download. Forgets what the emulator reported
 * before. */
smelt_status smelt__placed_run(struct smelt__placed *placed, const smelt_operator *object,
                               struct CUstream_st *stream);

/* The name of an input whose bytes on the device are no longer the problem's; NULL when there is
 * none, or when *status is not OK. */
const char *smelt__placed_changed_input(const struct smelt__placed *placed, smelt_status *status);

/* The downloaded row of an output, by its indices as smelt__problem_at takes them; NULL when the
 * output is not there. */
const void *smelt__placed_row(const struct smelt__placed *placed, int tensor, int64_t i, int64_t k,
                              int64_t l);

/* The same for a comparison, from a given element on; counts `count` elements as compared.
 * `expected`: their values before rounding to the output's type; for e4m3 the codes. */
const void *smelt__compared_row(const struct smelt__placed *placed, struct smelt__finding *finding,
                                int tensor, int64_t first, int64_t count, const double *expected);

/* The bits of all that was computed and has the same in every run, as a number. */
uint64_t smelt__placed_digest(const struct smelt__placed *placed);

/* Of two runs of one problem: the name of an output in which what has the same bits in every run
 * differs; NULL when there is none. */
const char *smelt__placed_difference(const struct smelt__placed *first,
                                     const struct smelt__placed *second);

/* Checks every downloaded byte. NULL if all computed elements are numbers and no other byte changed,
 * in the workspace's guards neither; else the kind of fault ("unwritten", "stray",
 * "workspace_guard"), with a message saying where. Overwrites the downloaded copy. */
const char *smelt__placed_verify_extent(struct smelt__placed *placed, char *message, size_t size);
