/* The compile matrix's cells of indexer_dense_loss. */
#include <stdio.h>

#include "cells.h"

/* Heads that fill no tile, more than a tile has, several key heads; widths with a short last part. */
static int odd_shape(int number, char *spec, size_t size) {
    static const char *const shapes[] = {"heads=1,dqk=16",
                                         "heads=5,dqk=80",
                                         "heads=128,dqk=1024",
                                         "heads=192,dqk=96",
                                         "heads=64,dqk=128,kv_heads=4",
                                         "heads=24,dqk=256,kv_heads=2",
                                         "heads=12,dqk=192,kv_heads=12",
                                         "heads=1024,dqk=560"};
    enum { SHAPES = sizeof shapes / sizeof *shapes };
    if (number >= SHAPES)
        return 0;
    snprintf(spec, size, "indexer_dense_loss:%s,index_heads=%d,index_dim=%d,deterministic=%d",
             shapes[number], number % 2 ? 64 : 3, number % 3 ? 128 : 64, number % 4 == 1);
    return 1;
}

static const char *const operators[] = {
    "indexer_dense_loss:heads=16,dqk=128,index_heads=8,index_dim=64,scores.block_keys=32,"
    "scores.slabs=1,scores.stages=2,scores.item_tiles=1",
    "indexer_dense_loss:heads=64,dqk=64,index_heads=8,index_dim=64,scores.row_tiles=2,"
    "scores.stages=6,scores.item_tiles=32",
    "indexer_dense_loss:heads=64,dqk=576,index_heads=64,index_dim=128,scores.variant=mma",
    "indexer_dense_loss:heads=64,dqk=512,index_heads=8,index_dim=64,scores.variant=sm90,"
    "scores.slabs=1,scores.stages=3",
    "indexer_dense_loss:heads=64,dqk=512,index_heads=32,index_dim=128,granularity=4",
    "indexer_dense_loss:heads=64,dqk=128,kv_heads=4,index_heads=4,index_dim=128,groups=4,"
    "block_max=128,activation=none",
    NULL,
};

const struct compile_cells compile_cells_indexer_dense_loss = {.shape = odd_shape,
                                                               .operators = operators};
