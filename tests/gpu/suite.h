/*
 * The GPU suite: run by hand on a machine with a GPU (no test framework, so that the program can be
 * carried there with the library alone), and by `meson test` on the emulator, where SMELT_CUDA
 * names it: problems are then smaller. Groups of cases; each case reports itself once.
 */
#ifndef SMELT_TEST_GPU_SUITE_H
#define SMELT_TEST_GPU_SUITE_H

#include <stdint.h>

#include "harness/check.h"
#include "smelt/smelt.h"

struct suite {
    smelt_context *context;
    uint64_t seed;
    const char *filter; /* run cases whose name contains it; NULL: all */
    const char *knobs;  /* for every spec that takes them, "variant=sm90"; NULL: none */
    int quick;          /* few and small cases, for compute-sanitizer */
    int list;           /* print names, run nothing */
    int without_driver; /* leave out what needs libcuda beside the library */
    int emulated;       /* the driver is the emulator */
    int verbose;
    int passed, failed, skipped;
};

/* Whether a spec takes suite->knobs: its values have a width that every variant has. */
int suite_takes_knobs(const struct suite *suite, const char *spec);

/* Whether to run the case; with --list prints its name and says no. */
int suite_wants(const struct suite *suite, const char *name);

/* Counts a case and prints it when it failed (or always, verbose). message: what is wrong; NULL or
 * "" means it passed. */
void suite_report(struct suite *suite, const char *name, const char *message);

/* Counts and prints a case that cannot be run here, when it is wanted. */
void suite_skip(struct suite *suite, const char *name, const char *reason);

/* A library call that must succeed: 0, or -1 with "CALL: STATUS: message" in `message`. */
int suite_ok(smelt_status status, const char *call, char *message, size_t size);

/* An operator with a problem of its first pass on the device. */
struct workload {
    struct smelt__harness_spec spec;
    const struct smelt__harness_pass *pass;
    void *object;
    struct smelt__problem problem;
    struct smelt__placed placed;
};

/* 0, or -1 with a message and nothing to close. */
int workload_open(struct workload *workload, struct suite *suite, const char *spec,
                  const struct smelt__problem_options *options, char *message, size_t size);
void workload_close(struct workload *workload);

/* Compares what was run and downloaded with the reference; "" or what is wrong in `message`. */
void workload_judge(struct workload *workload, char *message, size_t size);

/* ---- the groups ------------------------------------------------------------------------------ */

void run_matrix(struct suite *suite);      /* heads x topk x widths x lists x everything else */
void run_large(struct suite *suite);       /* offsets beyond 32 bits, on a GPU */
void run_far(struct suite *suite);         /* every offset beyond 32 bits, on the emulator */
void run_boundaries(struct suite *suite);  /* no queries, no rows, empty lists */
void run_heads(struct suite *suite);       /* heads that fill no block */
void run_rises(struct suite *suite);       /* scores that rise beyond fp32 along a list */
void run_invariance(struct suite *suite);  /* the same bits wherever a query stands */
void run_repetitions(struct suite *suite); /* one launch a thousand times */
void run_nonfinite(struct suite *suite);   /* NaN and infinity */
void run_buckets(struct suite *suite);     /* bucketed operators against plain ones */
void run_arguments(struct suite *suite);   /* what forward must refuse, and what it must not */
void run_launches(struct suite *suite);    /* graphs, streams, threads, contexts */

#endif
