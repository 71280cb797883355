/* A part of a call, by itself, gives the bits that it has in the whole. */
#pragma once

#include "suite.h"

struct part {
    const char *name, *spec;
    struct smelt__problem_options problem; /* packed; of one batch */
    int output;                            /* fp32, [tokens, columns], by the operator's table */
    /* Launches the call without its first queries and columns into the same memory, rows as far apart
     * as before. */
    smelt_status (*launch)(const struct workload *workload, struct CUstream_st *stream);
    int queries, columns; /* how many are left out */
};

void run_part(struct suite *suite, const struct part *part);
