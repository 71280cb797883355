/* smelt tune: shared by tune.c and tune_report.c. */
#pragma once

#include "../tool.h"
#include "harness/tune.h"

/* One kernel and the result of tuning it. */
struct tune_subject {
    const char *kernel;     /* without knobs, as in a tuning entry */
    const char *origin;     /* the operator given, for its pass only and without knobs;
                               "": the kernel itself was given */
    struct tool_list specs; /* of the candidates; the rule's plan, which has no knobs, first */
    struct smelt__tune_candidate *candidates;
    smelt_kernel_info *infos;
    struct smelt__tune_result result;
    int had_entry, stored, removed; /* in the tuning file */
    int failed;                     /* an exit status: not tuned, for the reason in `message` */
    char message[1200];
};

struct tune_run {
    struct tool_list kernels, origins; /* index by index */
    struct tune_subject *subjects;
    size_t count;
    smelt_context *measuring; /* without tuning entries, to time the rule's plan */
    smelt_context *keeping;   /* has the tuning file; in a dry run compile-only */
    const char *file;         /* the tuning file */
    smelt_device_info device;
    const char *arch;
};

/* A candidate's knobs. */
const char *tool_tune_knobs(const struct tune_subject *subject, size_t index);

/* Prints a dry run's candidates. Returns TOOL_OK. */
int tool_tune_print_candidates(const struct tune_run *tuning, const struct tool_options *options);

/* Prints the results and failures; returns the exit status. */
int tool_tune_report(const struct tune_run *tuning, const struct tool_options *options);
