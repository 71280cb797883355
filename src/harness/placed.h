/*
 * A problem placed on the device: inputs uploaded, outputs with guard zones and filled with values
 * that no result has before each run, so that what a kernel did not write, or should not have
 * written, is seen. Outputs that are added to hold the problem's start values instead. Where
 * tensors have gaps, they begin at addresses that are no rounder than they must be.
 */
#ifndef SMELT_HARNESS_PLACED_H
#define SMELT_HARNESS_PLACED_H

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

/* For tests: is told what `count` elements of an output from number `first` on should be, before
 * they are rounded to its type, and may change the downloaded copy, which is compared next. */
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
    struct smelt__footprints footprints; /* the inputs' on the emulator alone */
    smelt__answer_function answer;       /* NULL: nobody is told */
    void *answer_user;
};

/* Uploads; the emulator is told each tensor's name and what of it must not be touched: whoever
 * changes the arguments afterwards may only narrow what they name. The problem must outlive all but
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
smelt_status smelt__placed_workspace(struct smelt__placed *placed, const void *object);

/* Fills all outputs and their guards with what no result holds (guards.h), and the workspace; each
 * time with other bytes. */
smelt_status smelt__placed_poison(struct smelt__placed *placed);

/* Copies all outputs to the host; a second call reuses the memory. */
smelt_status smelt__placed_download(struct smelt__placed *placed);

/* Workspace, poison, launch on `stream`, wait, download. Forgets what the emulator reported
 * before. */
smelt_status smelt__placed_run(struct smelt__placed *placed, const void *object,
                               struct CUstream_st *stream);

/* The name of an input whose bytes on the device are no longer the problem's; NULL when there is
 * none, or when *status is not OK. */
const char *smelt__placed_changed_input(const struct smelt__placed *placed, smelt_status *status);

/* The downloaded row of an output, by its indices as smelt__problem_at takes them; NULL when the
 * output is not there. */
const void *smelt__placed_row(const struct smelt__placed *placed, int tensor, int64_t i, int64_t k,
                              int64_t l);

/* The same for a comparison, by the number of its first element; `count` elements count as
 * compared. `expected`: what each should be before it is rounded to the output's type; of e4m3 its
 * code. */
const void *smelt__compared_row(const struct smelt__placed *placed, struct smelt__finding *finding,
                                int tensor, int64_t first, int64_t count, const double *expected);

/* The bits of all that was computed and has the same in every run, as a number. */
uint64_t smelt__placed_digest(const struct smelt__placed *placed);

/* Of two runs of one problem: the name of an output in which what has the same bits in every run
 * differs; NULL when there is none. */
const char *smelt__placed_difference(const struct smelt__placed *first,
                                     const struct smelt__placed *second);

/* Looks at every byte downloaded: NULL when all computed elements are numbers and nothing else was
 * touched, nor the workspace's guards; else the name of what was found ("unwritten", "stray",
 * "workspace_guard"), with a message saying where. Overwrites the downloaded copy. */
const char *smelt__placed_verify_extent(struct smelt__placed *placed, char *message, size_t size);

#endif
