/* The core of `smelt check` and of the GPU suite: run a problem and compare it with the
 * double-precision reference. Uses the public API alone. */
#ifndef SMELT_TOOLS_CHECK_H
#define SMELT_TOOLS_CHECK_H

#include "harness/emulated.h"
#include "harness/placed.h"
#include "harness/problem.h"

struct smelt__check_options {
    const char *spec; /* the operator's text, knobs included */
    struct smelt__problem_options problem;
    int sample; /* queries compared, drawn from those computed, first and last among them;
                   0: 32. All queries are looked over for NaN and stray writes. */
    /* On the emulator: run under each of these, until one fails; all must give the same bits. NULL:
     * one run, as the emulator is set. Not looked at elsewhere. */
    const struct smelt__schedule *schedules;
    int schedule_count;
};

struct smelt__check_result {
    int passed;
    smelt_status status; /* not OK: what a library call refused or failed with */
    char spec[512];      /* canonical */
    char arch[16];
    double out_relative; /* |out - reference| / |reference|, over everything compared */
    double row_relative; /* the worst single (query, head) */
    double out_absolute, lse_absolute, max_logits_absolute; /* largest differences */
    double largest_score;                                   /* largest absolute score met */
    double out_tolerance, row_tolerance, lse_tolerance;
    int64_t queries, compared;
    int emulated;       /* run on the emulator */
    int reports;        /* what it reported of the run that failed: smelt__emulator()->report */
    double seconds;     /* of the whole check */
    char message[1024]; /* what is wrong, "" when passed; then the command */
    char command[768];  /* reproduces this check */
};

/* Runs one check. Returns 0 when it passed, else -1; the result says everything. Errors are the
 * largest of all schedules'; reports stay with the emulator until the next check. */
int smelt__check_run(smelt_context *context, const struct smelt__check_options *options,
                     struct smelt__check_result *result);

/* The comparison alone, for a problem that was run and downloaded (overwrites the copy). Fills the
 * error fields, `passed` and `message`. */
int smelt__check_compare(struct smelt__placed *placed, int sample,
                         struct smelt__check_result *result);

#endif
