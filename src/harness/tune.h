/* The core of `smelt tune`: checks candidates, then times them alternately. Uses the public API
 * only. */
#pragma once

#include "harness/problem.h"

enum {
    SMELT__TUNE_QUICK = 7,     /* launches of every candidate, to find the finalists */
    SMELT__TUNE_FINALISTS = 6, /* besides the rule's plan */
    SMELT__TUNE_REPEATS = 4,   /* lanes of the rule's plan among them; their differences measure the
                                  noise */
    SMELT__TUNE_LAUNCHES = 30  /* of every finalist, by default */
};

struct smelt__tune_candidate {
    char spec[256];      /* the operator's text, with the candidate's knobs */
    int dropped;         /* it is out of the race, for the reason in `message` */
    smelt_status status; /* not OK: a library call's result */
    char message[1024];  /* "" while it is in the race */
    double quick_us, us; /* medians of the quick round and of the final; 0: it was not in it */
};

struct smelt__tune_result {
    smelt_status status; /* not OK: nothing was timed */
    char message[1024];
    int best;        /* the candidate that won; 0, the rule's plan, unless another was faster than
                        each of its repeats by more than the noise */
    double rule_us;  /* of the rule's plan in the final: the median of its lanes' medians */
    double noise_us; /* the larger of: the range of those medians; three standard errors of a
                        median, estimated from the launches' spread */
    int64_t queries, rows, width;
};

/* Compares a candidate's results of a pass (0: the spec's first) with the double-precision
 * reference, on the operator's trial problems. Drops it when they differ. */
void smelt__tune_check(smelt_context *context, struct smelt__tune_candidate *candidate,
                       unsigned pass, uint64_t seed);

/*
 * Times a pass of the candidates that are not dropped, on one problem in device memory, with
 * alternating launches, each between two events. First all candidates, then the fastest ones and
 * the rule's plan, candidate 0, which has several lanes. `launches` 0: SMELT__TUNE_LAUNCHES.
 */
void smelt__tune_race(smelt_context *context, unsigned pass,
                      const struct smelt__problem_options *problem,
                      struct smelt__tune_candidate *candidates, int count, int launches,
                      struct smelt__tune_result *result);
