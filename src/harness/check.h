/* The core of `smelt check` and of the GPU suite: run a pass of an operator and compare it with the
 * double-precision reference. Uses the public API alone. */
#pragma once

#include "harness/emulated.h"
#include "harness/placed.h"
#include "harness/problem.h"

struct smelt__check_options {
    const char *spec; /* the operator's text, knobs included */
    unsigned pass;    /* SMELT_PASS_...; 0: the spec's first */
    struct smelt__problem_options problem;
    int sample; /* the maximum number of units compared of each kind, drawn from the computed ones
                   including the first and last; 0: 32. NaN and stray writes are searched for in all
                   outputs. */
    /* On the emulator: the check runs under each of these until one fails; all must give the same
     * bits. NULL: one run, with the emulator's settings. Ignored elsewhere. */
    const struct smelt__schedule *schedules;
    int schedule_count;
};

struct smelt__check_result {
    int passed;
    smelt_status status; /* not OK: what a library call refused or failed with */
    char spec[512];      /* canonical */
    const char *pass;    /* its name; NULL if the spec is invalid */
    char arch[16];
    struct smelt__metric_result metrics[SMELT__MOST_METRICS]; /* the largest over all schedules */
    int metric_count;
    struct smelt__rule_result rules[SMELT__MOST_RULES]; /* of the last run */
    int rule_count;
    const struct smelt__args_table *tensors; /* of the pass; NULL: nothing was compared */
    int64_t elements[SMELT__MOST_TENSORS];   /* of its outputs, compared in the last run */
    int64_t units, compared;                 /* of the pass's first kind, for example queries */
    int emulated;                            /* run on the emulator */
    int reports;         /* number of its reports of the failed run (smelt__emulator()->report) */
    double seconds;      /* of the whole check */
    const char *culprit; /* name of the failed metric or rule; or "not_compared", "unwritten",
                            "stray", "workspace_guard", "input_written", "other_bits"; NULL: no
                            failure */
    char message[1024];  /* the error and the command that reproduces it; "" when passed */
    char command[768];   /* reproduces this check */
};

/* Runs one check. Returns 0 if it passed, else -1, and fills the result. Errors are the largest
 * over all schedules. The emulator keeps its reports until the next check. */
int smelt__check_run(smelt_context *context, const struct smelt__check_options *options,
                     struct smelt__check_result *result);

/* Whether a check is impossible: its spec is not supported on the context's architecture, or its
 * call refuses the problem. Generates and runs nothing. 1 with the result's spec, status and
 * message, without a command; 0: run the check, which reports any other error. */
int smelt__check_refused(smelt_context *context, const struct smelt__check_options *options,
                         struct smelt__check_result *result);

/* The comparison alone, for a problem that was run and downloaded (overwrites the copy). Fills the
 * metrics, `passed` and `message`. */
int smelt__check_compare(struct smelt__placed *placed, int sample,
                         struct smelt__check_result *result);

/* The value of a metric, by its JSON names; NaN when the pass has none of that name. */
double smelt__check_value(const struct smelt__check_result *result, const char *group,
                          const char *name);
