/* The core of `smelt bench`: interleaved timing with events. Uses the public API alone. */
#pragma once

#include "harness/problem.h"

struct smelt__bench_item {
    char spec[256]; /* the operator's text */
    unsigned pass;  /* SMELT_PASS_...; 0: the spec's first */
    struct smelt__problem_options problem;
};

struct smelt__bench_result {
    smelt_status status; /* not OK: `message` says why, no figures */
    char message[1024];
    char spec[256];
    const char *pass;                          /* its name; NULL without figures */
    int64_t queries, rows, width, valid_slots; /* queries: B * T; valid_slots: of all of them */
    const char *lists;                         /* the kind of inputs */
    double ms_median, ms_min, ms_max;
    struct smelt__rate rates[SMELT__MOST_RATES]; /* the operator's; see smelt__bench_rate */
    int rate_count;
    double launch_us; /* CPU time of a call, tiny work, 500 calls between synchronisations; 0: not
                         measured */
};

/* A rate's value at the median time. */
static inline double smelt__bench_rate(const struct smelt__bench_result *result, int rate) {
    return result->ms_median > 0 ? result->rates[rate].amount / (result->ms_median * 1e-3) : 0;
}

/* Times all items, in groups that fit in memory together. In every round each item of a group is
 * launched once, between two events. `launches` 0: 30. Fills results[count]; the return value is
 * the number of items without figures. */
int smelt__bench_run(smelt_context *context, const struct smelt__bench_item *items, int count,
                     int launches, struct smelt__bench_result *results);

/* The shapes at which operators are compared with other libraries' (the rows' `peers`). Only
 * shapes, no times: bench/peers times both libraries alternately in one process. Writes up to
 * `capacity` items; returns how many there are. */
int smelt__bench_peer_items(struct smelt__bench_item *items, int capacity);
