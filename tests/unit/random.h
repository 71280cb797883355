/*
 * Random numbers for tests: the seed is printed; SMELT_TEST_SEED sets it.
 */
#pragma once

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct random {
    uint64_t state;
};

static inline uint64_t test_seed(const char *test) {
    const char *given = getenv("SMELT_TEST_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t seed =
        given ? strtoull(given, NULL, 0) : (uint64_t)now.tv_sec * 1000003 + (uint64_t)now.tv_nsec;
    printf("%s: SMELT_TEST_SEED=%" PRIu64 "\n", test, seed);
    fflush(stdout); /* before a fork, or an abort */
    return seed;
}

static inline struct random random_begin(const char *test) {
    return (struct random){test_seed(test)};
}

/* Steele, Lea and Flood's SplitMix64. */
static inline uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline uint64_t random_next(struct random *random) {
    return next_random(&random->state);
}

static inline int random_below(struct random *random, int count) {
    return (int)(random_next(random) % (uint64_t)count);
}

/* 1..limit, below a random power of two, so that small numbers are as frequent as large ones. */
static inline int64_t random_size(struct random *random, int64_t limit) {
    const int64_t below = INT64_C(1) << random_below(random, 32);
    const int64_t value = (int64_t)(random_next(random) % (uint64_t)below) + 1;
    return value < limit ? value : limit;
}
