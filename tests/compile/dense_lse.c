/* The compile matrix's cells of dense_lse. */
#include <stdio.h>

#include "cells.h"

/* Heads that fill no tile, more than a tile has, several key heads; widths with a short last part. */
static int odd_shape(int number, char *spec, size_t size) {
    static const char *const shapes[] = {"heads=1,dqk=16",
                                         "heads=5,dqk=80",
                                         "heads=128,dqk=576",
                                         "heads=5,dqk=1024",
                                         "heads=192,dqk=96",
                                         "heads=64,dqk=128,kv_heads=4",
                                         "heads=24,dqk=256,kv_heads=2",
                                         "heads=12,dqk=192,kv_heads=12",
                                         "heads=1024,dqk=560"};
    enum { SHAPES = sizeof shapes / sizeof *shapes };
    if (number >= SHAPES)
        return 0;
    snprintf(spec, size, "dense_lse:%s", shapes[number]);
    return 1;
}

static const char *const operators[] = {
    "dense_lse:heads=16,dqk=128,block_rows=32,slabs=1,stages=2",
    "dense_lse:heads=16,dqk=64,block_rows=64,slabs=2,stages=6",
    "dense_lse:heads=64,dqk=576,variant=mma",
    "dense_lse:heads=8,dqk=576,variant=sm90,slabs=1,stages=2,racecheck=1",
    NULL,
};

const struct compile_cells compile_cells_dense_lse = {.shape = odd_shape, .operators = operators};
