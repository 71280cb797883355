/* The compile matrix's cells of sparse_gqa. */
#include <stdio.h>

#include "cells.h"

/* Every pair of widths, with groups of heads that fill a tile of 16 badly or not at all; the rest takes
 * turns. */
static int odd_shape(int number, char *spec, size_t size) {
    static const int groups[] = {1, 7, 16, 17, 40, 64};
    static const int columns[] = {64, 96, 128, 192, 256};
    static const int granularities[] = {1, 4, 16, 64, 128};
    enum { GROUPS = 6, COLUMNS = 5, PAIRS = 15, SHAPES = 2 * PAIRS };
    const int group = groups[(number + number / PAIRS) % GROUPS], kv_heads = 1 + number % 3;
    int pair = number % PAIRS, dqk = 0;
    while (pair > dqk) /* dv <= dqk: 1, 2, ... pairs of each dqk */
        pair -= ++dqk;
    if (number >= SHAPES)
        return 0;
    snprintf(
        spec, size, "sparse_gqa:heads=%d,kv_heads=%d,dqk=%d,dv=%d,topk=16,granularity=%d%s%s%s",
        group * kv_heads, kv_heads, columns[dqk], columns[pair], granularities[number % COLUMNS],
        number % 2 ? ",lists=kv" : "", number % 4 < 2 ? ",sink=1" : "",
        number < PAIRS   ? ""
        : number % 3 < 2 ? ",passes=backward,deterministic=1"
                         : ",passes=backward");
    return 1;
}

static const char *const operators[] = {
    "sparse_gqa:heads=64,kv_heads=4,dqk=128,dv=128,topk=16,granularity=128,lists=kv,variant=mma",
    "sparse_gqa:heads=24,kv_heads=2,dqk=256,dv=256,topk=512,granularity=4",
    "sparse_gqa:heads=32,kv_heads=1,dqk=256,dv=256,topk=512,granularity=1,deterministic=1,passes="
    "backward",
    "sparse_gqa:heads=64,kv_heads=4,dqk=192,dv=128,topk=16,granularity=64,lists=kv,unite=1",
    "sparse_gqa:heads=64,kv_heads=4,dqk=128,dv=128,topk=16,granularity=64,variant=mma,"
    "block_keys=128",
    NULL,
};

const struct compile_cells compile_cells_sparse_gqa = {.shape = odd_shape, .operators = operators};
