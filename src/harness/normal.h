/* Rows of normally distributed bf16 values. */
#pragma once

#include <stdint.h>

struct smelt__problem;
struct smelt__random;

enum { SMELT__NORMAL_BITS = 12, SMELT__NORMALS = 1 << SMELT__NORMAL_BITS };

/* Quantiles of the normal distribution as bf16; an element drawn with SMELT__NORMAL_BITS random
 * bits is normally distributed. */
struct smelt__normals {
    uint16_t values[SMELT__NORMALS];
};

/* A shared table, made by the first call. Thread-safe. */
const struct smelt__normals *smelt__normals(void);

/* A normal value drawn from `random`. */
float smelt__normal_next(struct smelt__random *random);

/* Row number `row` of stream `stream` of a seed: `count` values. */
void smelt__normals_row(const struct smelt__normals *normals, uint64_t seed, uint64_t stream,
                        uint64_t row, uint16_t *to, int64_t count);

/* Fills a bf16 tensor of a problem, row after row, with those of a stream. */
void smelt__normals_fill(struct smelt__problem *problem, int tensor, uint64_t stream);

/* Makes rows NaN that no query reads, so that a kernel that reads one gives NaN: of the keys that are
 * not `used`, in a bf16 tensor whose first extent counts keys. */
void smelt__unused_fill(struct smelt__problem *problem, int tensor, const uint8_t *used);
