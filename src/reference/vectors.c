/* See vectors.h. */
#include "reference/vectors.h"

#include <math.h>

#include "reference/bf16.h"

void smelt__widen(const uint16_t *from, int64_t count, double *to) {
    for (int64_t i = 0; i < count; i++)
        to[i] = (double)smelt__bf16_to_float(from[i]);
}

/* Four partial sums, because one would wait for each addition before the next. */
double smelt__dot(const double *a, const double *b, int64_t count) {
    double sum[4] = {0, 0, 0, 0};
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        sum[0] += a[i] * b[i];
        sum[1] += a[i + 1] * b[i + 1];
        sum[2] += a[i + 2] * b[i + 2];
        sum[3] += a[i + 3] * b[i + 3];
    }
    for (; i < count; i++)
        sum[0] += a[i] * b[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

double smelt__dot_of_sizes(const double *a, const double *b, int64_t count) {
    double sum[4] = {0, 0, 0, 0};
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        sum[0] += fabs(a[i] * b[i]);
        sum[1] += fabs(a[i + 1] * b[i + 1]);
        sum[2] += fabs(a[i + 2] * b[i + 2]);
        sum[3] += fabs(a[i + 3] * b[i + 3]);
    }
    for (; i < count; i++)
        sum[0] += fabs(a[i] * b[i]);
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}
