/* Special problems of sparse_gqa's exact sums (sparse_gqa_exact.c): each changes the inputs of a backward pass of the
 * spec that sparse_gqa.c names, runs it, and writes to `message` what is wrong. */
#pragma once

#include "suite.h"

enum {
    SPARSE_GQA_STEPS_QUERIES = 56,
    SPARSE_GQA_STEPS_WIDTH = 64, /* a block of keys */
    SPARSE_GQA_STEPS_ROWS = 128  /* so many that the grains fill their memory */
};

void sparse_gqa_exact_sums(struct workload *work, char *message, size_t size);
void sparse_gqa_exact_steps(struct workload *work, char *message, size_t size);
void sparse_gqa_infinite_column(struct workload *work, char *message, size_t size);
