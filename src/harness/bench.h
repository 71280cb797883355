/* The core of `smelt bench`: interleaved timing with events. Uses the public API alone. */
#ifndef SMELT_TOOLS_BENCH_H
#define SMELT_TOOLS_BENCH_H

#include "harness/problem.h"

struct smelt__bench_item {
    char spec[256]; /* the operator's text */
    struct smelt__problem_options problem;
};

struct smelt__bench_result {
    smelt_status status; /* not OK: `message` says why, no figures */
    char message[1024];
    char spec[256];
    int64_t queries, rows, width, valid_slots; /* queries: B * T; valid_slots: of all of them */
    const char *lists;
    double ms_median, ms_min, ms_max;
    double tflops;         /* 2 * valid slots * heads * (dqk + dv) / time */
    double gather_tbs;     /* valid slots * dqk * 2 bytes / time: each row once per query */
    double launch_us;      /* CPU time of a call, tiny work, 500 calls between synchronisations */
    double tflops_ceiling; /* of an H200 under load */
    double gather_ceiling; /* measured on an H200 for about this many rows, TB/s */
    double tflops_ratio, gather_ratio; /* to those ceilings */
};

/* Times all items, in turn within groups of those that fit in memory together: every round launches
 * each item once between two events. `launches` 0: 30. Fills results[count]; the return value is
 * the number of items without figures. */
int smelt__bench_run(smelt_context *context, const struct smelt__bench_item *items, int count,
                     int launches, struct smelt__bench_result *results);

/* The shapes at which the forward is compared with FlashMLA's, and 8, 16, 32 heads. Shapes alone:
 * a peer's time from another run is no measure (bench/peers times both in turn). Writes up to
 * `capacity` items; returns how many there are. */
int smelt__bench_peer_items(struct smelt__bench_item *items, int capacity);

#endif
