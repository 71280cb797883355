/*
 * Chains of operators on the device, one's outputs the next one's inputs: captured in one graph and
 * replayed on changed inputs they give the bits that the calls give one by one.
 */
#pragma once

#include "suite.h"

enum { CHAIN_MOST_LINKS = 8 };

struct chain {
    struct workload links[CHAIN_MOST_LINKS];
    int open; /* how many of them are */
    struct CUstream_st *stream;
};

static inline void *chain_args(struct chain *chain, int link) {
    return chain->links[link].placed.args;
}

struct chain_plan {
    const char *name;         /* of the case */
    const char *const *specs; /* [links], in the order of the calls */
    int links;
    /* The problem of a link, whose seed is set; `tokens` are those of a step. */
    void (*problem)(int link, int64_t tokens, struct smelt__problem_options *options);
    void (*connect)(struct chain *chain); /* names in each link's arguments what others write */
    /* Where bf16 rows, the first tensor of these links, turn signs, `decided` writes other bits. */
    int first_changed, last_changed, decided;
};

/* Reports the case. */
void run_chain(struct suite *suite, const struct chain_plan *plan);
