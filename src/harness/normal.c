/* See normal.h. */
#include "harness/normal.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "harness/parallel.h"
#include "harness/problem.h"
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

float smelt__normal_next(struct smelt__random *random) {
    const uint64_t bits = smelt__random_next(random);
    return smelt__bf16_to_float(smelt__normals()->values[bits & (SMELT__NORMALS - 1)]);
}

struct fill {
    struct smelt__problem *problem;
    int tensor;
    uint64_t stream;
    int64_t columns;
};

static void fill_rows(void *user, int64_t begin, int64_t end) {
    const struct fill *const fill = user;
    uint16_t *const data = smelt__problem_data(fill->problem, fill->tensor);
    for (int64_t row = begin; row < end; row++)
        smelt__normals_row(&table, fill->problem->options.seed, fill->stream, (uint64_t)row,
                           data + smelt__problem_row(fill->problem, fill->tensor, row),
                           fill->columns);
}

static int64_t columns_of(const struct smelt__problem *problem, int tensor) {
    const struct smelt__tensor_row *const row = &problem->pass->tensors->rows[tensor];
    return problem->extents[row->shape[row->dimensions - 1]];
}

void smelt__normals_fill(struct smelt__problem *problem, int tensor, uint64_t stream) {
    struct fill fill = {problem, tensor, stream, columns_of(problem, tensor)};
    smelt__normals();
    smelt__parallel_for(smelt__problem_rows(problem, tensor), 256, fill_rows, &fill);
}

void smelt__unused_fill(struct smelt__problem *problem, int tensor, const uint8_t *used) {
    uint16_t *const data = smelt__problem_data(problem, tensor);
    const int64_t rows = smelt__problem_rows(problem, tensor);
    const int64_t keys = problem->extents[problem->pass->tensors->rows[tensor].shape[0]];
    for (int64_t row = 0; row < rows; row++)
        if (!used[row / (rows / keys)])
            memset(data + smelt__problem_row(problem, tensor, row), 0xff,
                   (size_t)columns_of(problem, tensor) * sizeof *data);
}
