/* smelt tune, between what it does (tune.c) and what it says of it (tune_report.c). */
#ifndef SMELT_TOOLS_TUNE_H
#define SMELT_TOOLS_TUNE_H

#include "../tool.h"
#include "harness/tune.h"

/* One kernel and what became of it. */
struct tune_subject {
    char *kernel;           /* without knobs: what a tuning entry names; freed by smelt_free */
    const char *origin;     /* the operator it was named by, of its pass alone and without knobs;
                               "": the kernel itself was named */
    struct tool_list specs; /* of the candidates; the rule's plan, which has no knobs, first */
    struct smelt__tune_candidate *candidates;
    smelt_kernel_info *infos;
    struct smelt__tune_result result;
    int had_entry, stored, removed; /* in the tuning file */
    int failed;                     /* an exit status: it was not tuned, `message` says why */
    char message[1200];
};

struct tune_run {
    struct tool_list kernels, origins; /* side by side */
    struct tune_subject *subjects;
    size_t count;
    smelt_context *measuring; /* knows no tuning entries: the rule's plan is the rule's */
    smelt_context *keeping;   /* has the tuning file */
    smelt_device_info device;
    const char *arch;
};

/* A candidate's knobs. */
const char *tool_tune_knobs(const struct tune_subject *subject, size_t index);

/* Of a dry run. Returns TOOL_OK. */
int tool_tune_print_candidates(const struct tune_run *tuning, const struct tool_options *options);

/* What was measured, kept and failed; an exit status. */
int tool_tune_report(const struct tune_run *tuning, const struct tool_options *options);

#endif
