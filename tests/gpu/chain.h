/*
 * Chains of operators on the device, where outputs are inputs of the next operator: captured in one
 * graph and replayed on changed inputs, they give the same bits as single calls.
 */
#pragma once

#include "suite.h"

enum { CHAIN_MOST_LINKS = 8 };

struct chain {
    struct workload links[CHAIN_MOST_LINKS];
    int open; /* number of open ones */
    struct CUstream_st *stream;
};

static inline void *chain_args(struct chain *chain, int link) {
    return chain->links[link].placed.args;
}

struct chain_plan {
    const char *name;         /* the case's name */
    const char *const *specs; /* [links], in the order of the calls */
    int links;
    /* Sets a link's problem, whose seed is given; `tokens` of a step. */
    void (*problem)(int link, int64_t tokens, struct smelt__problem_options *options);
    void (*connect)(struct chain *chain); /* puts other links' outputs into each link's arguments */
    /* If the signs of bf16 rows, the first tensor of these links, change, the results of link
     * `decided` change. */
    int first_changed, last_changed, decided;
};

/* Reports the case. */
void run_chain(struct suite *suite, const struct chain_plan *plan);
