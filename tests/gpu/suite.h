/*
 * The GPU suite: run by hand on a machine with a GPU (no test framework, so that the program can be
 * carried there with the library alone), and by `meson test` on the emulator, where SMELT_CUDA
 * names it: problems are then smaller. Groups of cases; each case reports itself once.
 */
#pragma once

#include <stdint.h>

#include "harness/check.h"
#include "harness/random.h"
#include "sample.h"
#include "smelt/smelt.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* One of the numbers. */
#define PICK(random, ...)                                                                          \
    (((const int64_t[]){__VA_ARGS__})[smelt__random_below(                                         \
        random, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))])

struct suite {
    smelt_context *context;
    uint64_t seed;
    const char *filter; /* run cases whose name contains it; NULL: all */
    const char *knobs;  /* for every spec that takes them, "variant=sm90"; NULL: none */
    int quick;          /* few and small cases, for compute-sanitizer */
    int list;           /* print names, run nothing */
    int without_driver; /* omit cases that call libcuda directly */
    int emulated;       /* the driver is the emulator */
    int verbose;
    struct sample *sample; /* the cases, drawn or being collected; NULL: all run */
    int part, parts;       /* run part `part` of so many parts of the cases; parts 0: all */
    int op;                /* number of the current operator */
    int passed, failed, skipped;
};

/* Whether the case is selected. */
int suite_has(const struct suite *suite, const char *name);

/* Whether to run the case; with --list prints its name and returns 0. Every case must call this
 * first, because the sample is drawn from these calls. */
int suite_wants(struct suite *suite, const char *name);

/* Counts a case, and prints it if it failed (or always, if verbose). message: the failure; NULL or
 * "": passed. */
void suite_report(struct suite *suite, const char *name, const char *message);

/* Counts and prints a selected case that cannot run here. Samples exclude it. */
void suite_skip(struct suite *suite, const char *name, const char *reason);

/* A library call that must succeed: 0, or -1 with "CALL: STATUS: message" in `message`. */
int suite_ok(smelt_status status, const char *call, char *message, size_t size);

/* An operator with a problem of its first pass on the device. */
struct workload {
    struct smelt__harness_spec spec;
    const struct smelt__harness_pass *pass;
    smelt_operator *object;
    struct smelt__problem problem;
    struct smelt__placed placed;
};

/* 0, or -1 with a message and nothing to close. */
int workload_open(struct workload *workload, struct suite *suite, const char *spec,
                  const struct smelt__problem_options *options, char *message, size_t size);
void workload_close(struct workload *workload);

/* Compares downloaded results with the reference; `message`: the failure or "". */
void workload_judge(struct workload *workload, char *message, size_t size);

/* ---- groups of cases ------------------------------------------------------------------------- */

struct suite_group {
    const char *name;
    void (*run)(struct suite *suite);
};

/* Groups of every operator, by its row below. */
void run_matrix(struct suite *suite);      /* shapes x inputs x everything else */
void run_large(struct suite *suite);       /* offsets beyond 32 bits, on a GPU */
void run_far(struct suite *suite);         /* every offset beyond 32 bits, on the emulator */
void run_launches(struct suite *suite);    /* graphs, streams, threads, contexts */
void run_repetitions(struct suite *suite); /* one launch a thousand times */
void run_nonfinite(struct suite *suite);   /* NaN and infinity in the inputs of a query or a key */

/* ---- operators: one row each, in tests/gpu/STEM.c -------------------------------------------- */

enum { SUITE_SPEC = 192 };

/* One check. */
struct suite_case {
    const char *name; /* NULL: its command */
    char spec[SUITE_SPEC];
    int sample;
    struct smelt__problem_options problem;
};

#define SUITE_CASE(name_, spec_, sample_, ...)                                                     \
    {                                                                                              \
        .name = (name_), .spec = spec_, .sample = (sample_), .problem = { __VA_ARGS__ }            \
    }

#define SUITE_FAR(spec_, ...)                                                                      \
    {                                                                                              \
        .spec = spec_, .problem = { __VA_ARGS__ }                                                  \
    }

/* Runs a case, on the emulator under the schedule of that number, and reports it. */
void suite_check(struct suite *suite, const char *name, const struct suite_case *one, int schedule);

/* Fills a zeroed *one with case number `number`; 0 past the last. */
typedef int (*suite_cases)(const struct suite *suite, int number, struct suite_case *one);

/* Checks all cases, named by group and spec; those for sm_90a are skipped elsewhere. */
void suite_check_all(struct suite *suite, const char *group, suite_cases next);

struct suite_operator {
    suite_cases matrix;                /* NULL: none */
    const struct suite_case *repeated; /* of the group repetitions, ended by ""; NULL: none */
    /* Sizes of their problems for a quick run or the emulator; 0: the same. */
    struct smelt__harness_sizes quick_repeated;
    const struct suite_case *large; /* ended by a NULL name; NULL: none; the group sets seeds */
    const char *const *launches;    /* specs whose launches are tried, ended by NULL */
    /* Packed problems for them; and smaller ones for a quick run or the emulator. */
    struct smelt__problem_options launch, quick_launch;
    const struct suite_case *far; /* more specs and small problems for the group far; ended by "" */
    const struct suite_group *groups; /* of this operator only; ended by a NULL name; NULL: none */
};

#define OPERATOR(stem) extern const struct suite_operator suite_operator_##stem;
#include "operators.list"
#undef OPERATOR

/* All operators, ended by NULL. */
extern const struct suite_operator *const suite_operators[];
