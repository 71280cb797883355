/* The core of `smelt tune`: candidates are checked, then race each other. Uses the public API
 * alone.
 */
#pragma once

#include "harness/problem.h"

enum {
    SMELT__TUNE_QUICK = 7,     /* launches of every candidate, to find the finalists */
    SMELT__TUNE_FINALISTS = 6, /* besides the rule's plan */
    SMELT__TUNE_REPEATS = 4,   /* of the rule's plan among them: how far they differ is the noise */
    SMELT__TUNE_LAUNCHES = 30  /* of every finalist, unless said otherwise */
};

struct smelt__tune_candidate {
    char spec[256];      /* the operator's text, with the candidate's knobs */
    int dropped;         /* it takes no part any more; `message` says why */
    smelt_status status; /* not OK: a library call's result */
    char message[1024];  /* "" when it takes part */
    double quick_us, us; /* medians of the quick round and of the final; 0: not in it */
};

struct smelt__tune_result {
    smelt_status status; /* not OK: nothing was timed */
    char message[1024];
    int best;        /* the candidate that won; 0, the rule's plan, unless another was faster than
                        each of its repeats by more than the noise */
    double rule_us;  /* of the rule's plan in the final: median of its repeats' medians */
    double noise_us; /* the largest of those minus the smallest, or three standard errors of a
                        median as the spread of the launches gives them: the larger */
    int64_t queries, rows, width;
};

/* Compares a candidate's results of a pass (0: the spec's first) with the double-precision
 * reference, on the operator's trial problems. Drops it when they differ. */
void smelt__tune_check(smelt_context *context, struct smelt__tune_candidate *candidate,
                       unsigned pass, uint64_t seed);

/*
 * Times a pass of those candidates that are not dropped, on one problem in device memory: launches
 * in turn, between two events each. First all of them, then the fastest and the rule's plan,
 * candidate 0, which is there several times. `launches` 0: SMELT__TUNE_LAUNCHES.
 */
void smelt__tune_race(smelt_context *context, unsigned pass,
                      const struct smelt__problem_options *problem,
                      struct smelt__tune_candidate *candidates, int count, int launches,
                      struct smelt__tune_result *result);
