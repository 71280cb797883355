/* Monotonic time, for deadlines and durations. */
#pragma once

#include <stdint.h>
#include <time.h>

static inline int64_t smelt__now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline double smelt__seconds_since(int64_t begin_ns) {
    return 1e-9 * (double)(smelt__now_ns() - begin_ns);
}
