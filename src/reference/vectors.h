/* Rows of numbers in the references. */
#pragma once

#include <stdint.h>

/* bf16 values as doubles. */
void smelt__widen(const uint16_t *from, int64_t count, double *to);

/* The sum of a[i] * b[i], and of their sizes. */
double smelt__dot(const double *a, const double *b, int64_t count);
double smelt__dot_of_sizes(const double *a, const double *b, int64_t count);
