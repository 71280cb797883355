/* Random numbers: a generator is made from (seed, stream, index), so that any thread can make any
 * part of a tensor. Splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number
 * generators", OOPSLA 2014. */
#pragma once

#include <stdint.h>

struct smelt__random {
    uint64_t state;
};

static inline uint64_t smelt__random_next(struct smelt__random *random) {
    uint64_t z = random->state += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

static inline struct smelt__random smelt__random_at(uint64_t seed, uint64_t stream,
                                                    uint64_t index) {
    struct smelt__random random = {seed * 0xff51afd7ed558ccdU + stream};
    random.state = smelt__random_next(&random) + index * 0xd6e8feb86659fd93U;
    random.state = smelt__random_next(&random);
    return random;
}

/* Uniform in [0, bound), bound > 0. The bias is below bound / 2^64. */
static inline int64_t smelt__random_below(struct smelt__random *random, int64_t bound) {
    return (int64_t)(smelt__random_next(random) % (uint64_t)bound);
}
