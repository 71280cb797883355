/* A part of a call gives the same bits as in the whole call. */
#pragma once

#include "suite.h"

struct part {
    const char *name, *spec;
    struct smelt__problem_options problem; /* packed; of one batch */
    int output;                            /* [tokens, columns], by the operator's table */
    /* Launches the call without its first queries and columns, with the same memory and row
     * strides. */
    smelt_status (*launch)(const struct workload *workload, struct CUstream_st *stream);
    int queries, columns; /* the number of omitted ones */
};

void run_part(struct suite *suite, const struct part *part);
