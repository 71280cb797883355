/* The compile matrix's cells of sparse_gqa_scores. */
#include <stdio.h>

#include "cells.h"

/* Groups of heads that fill a tile of 16 badly or not at all; the rest takes turns. */
static int odd_shape(int number, char *spec, size_t size) {
    static const int groups[] = {1, 7, 16, 17, 40, 64};
    static const int columns[] = {64, 96, 128, 192, 256};
    static const int granularities[] = {128, 64, 16, 4, 1};
    enum { COLUMNS = 5, SHAPES = 10 };
    const int kv_heads = 1 + number % 3;
    if (number >= SHAPES)
        return 0;
    snprintf(spec, size, "sparse_gqa_scores:heads=%d,kv_heads=%d,dqk=%d,topk=16,granularity=%d%s",
             groups[number % 6] * kv_heads, kv_heads, columns[number % COLUMNS],
             granularities[(number + number / COLUMNS) % COLUMNS], number % 2 ? ",lists=kv" : "");
    return 1;
}

static const char *const operators[] = {
    "sparse_gqa_scores:heads=24,kv_heads=2,dqk=256,topk=512,granularity=4",
    NULL,
};

const struct compile_cells compile_cells_sparse_gqa_scores = {.shape = odd_shape,
                                                              .operators = operators};
