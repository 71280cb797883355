/* Shared by the programs of this folder. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "smelt/status.h"

static inline double nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

static inline int compare_doubles(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Sorts the values. */
static inline double median(double *values, size_t count) {
    qsort(values, count, sizeof *values, compare_doubles);
    return values[count / 2];
}

/* Ends the program with the last error unless the status is OK: exit status 3 without a GPU, else
 * 1. */
static inline void require(smelt_status status) {
    if (status == SMELT_OK)
        return;
    fflush(stdout);
    fprintf(stderr, "%s\n", smelt_last_error());
    exit(status == SMELT_ERROR_NO_DRIVER || status == SMELT_ERROR_NO_DEVICE ? 3 : 1);
}
