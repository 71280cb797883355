/* See normal.h. */
#include "harness/normal.h"

#include <math.h>
#include <pthread.h>

#include "harness/random.h"
#include "reference/bf16.h"

/* The x with P(X < x) = p, by bisection. */
static double normal_quantile(double p) {
    double low = -8, high = 8;
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        if (erfc(-middle / sqrt(2.0)) / 2 < p)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static struct smelt__normals table;

static void make_table(void) {
    for (int i = 0; i < SMELT__NORMALS; i++)
        table.values[i] =
            smelt__bf16_from_float((float)normal_quantile((i + 0.5) / SMELT__NORMALS));
}

const struct smelt__normals *smelt__normals(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_table);
    return &table;
}

void smelt__normals_row(const struct smelt__normals *normals, uint64_t seed, uint64_t stream,
                        uint64_t row, uint16_t *to, int64_t count) {
    struct smelt__random random = smelt__random_at(seed, stream, row);
    for (int64_t i = 0; i < count;) {
        uint64_t bits = smelt__random_next(&random);
        for (int k = 0; k < 64 / SMELT__NORMAL_BITS && i < count; k++, bits >>= SMELT__NORMAL_BITS)
            to[i++] = normals->values[bits & (SMELT__NORMALS - 1)];
    }
}
