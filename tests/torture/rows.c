#include "rows.h"

const struct row rows[] = {
    {"cold", row_cold, "processes=, keys=, rounds=: many processes want the same kernels at once"},
    {"kill", row_kill, "processes=, keys=, kills=, limit_ms=: processes killed at random moments"},
    {"churn", row_churn, "operations=: 8 writers and 8 readers under a cap of three entries"},
    {"threads", row_threads, "rounds=: 24 threads want the same kernels and different ones"},
    {"contexts", row_contexts, "rounds=: two CUDA contexts, one destroyed, one reset"},
    {"forks", row_forks, "forks=: before use, after use, while threads compile"},
    {"unload", row_unload, "lives=, library=PATH: dlopen, use, dlclose, again"},
    {"calls", row_calls, "stride=, limit_ms=: killed at every system call of a store"},
    {"store", row_store, "folder=, cap=: the process that `calls` kills"},
    {"clock", row_clock, "rounds=: clocks off by an hour, by ten years"},
    {"skewed", row_skewed, "folder=, real=, skew=: the process that `clock` runs"},
    {"disk", row_disk, "a full disk"},
    {"mounts", row_mounts, "rounds=: two nodes that see each other's changes late"},
    {"hostile", row_hostile, "tool=PATH, limit_ms=: sizes of gigabytes within 64 MB"},
    {0},
};
