/* A part of a call, by itself, gives the bits that it has in the whole. */
#ifndef SMELT_TEST_GPU_PARTS_H
#define SMELT_TEST_GPU_PARTS_H

#include "suite.h"

struct part {
    const char *name, *spec;
    struct smelt__problem_options problem; /* packed */
    int output;                            /* fp32, [tokens, columns], by the operator's table */
    /* Launches the part into the same memory. */
    smelt_status (*launch)(const struct workload *workload, struct CUstream_st *stream);
    /* Says in `message` what differs from `whole`, the output of the whole call. */
    void (*compare)(const struct workload *workload, const float *whole, char *message,
                    size_t size);
};

void run_part(struct suite *suite, const struct part *part);

#endif
