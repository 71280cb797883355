/* The compile matrix's cells of indexer_scores. */
#include <stdio.h>

#include "cells.h"

/* Numbers of heads that are not multiples of 8, and every multiple of 8 for which registers are
 * scarce. */
static int odd_shape(int number, char *spec, size_t size) {
    static const int heads[] = {1, 3, 8, 20, 32, 64, 100, 127, 128};
    enum { HEADS = sizeof heads / sizeof *heads };
    if (number >= HEADS * 2)
        return 0;
    snprintf(spec, size, "indexer_scores:heads=%d,dim=%d,topk=2048", heads[number / 2],
             number % 2 ? 64 : 128);
    return 1;
}

static const char *const operators[] = {
    "indexer_scores:heads=64,dim=128,topk=2048,variant=mma",
    "indexer_scores:heads=64,dim=128,topk=2048,variant=mma,warps=4,blocks=2",
    "indexer_scores:heads=128,dim=128,topk=2048,variant=mma,warp_keys=16",
    "indexer_scores:heads=5,dim=64,topk=2048,variant=mma,warp_keys=16,blocks=1",
    "indexer_scores:heads=64,dim=128,topk=2048,variant=sm90,warpgroups=2,stages=2",
    "indexer_scores:heads=64,dim=128,topk=2048,variant=sm90,warpgroups=3",
    "indexer_scores:heads=64,dim=128,topk=2048,variant=sm90,warpgroups=3,block_keys=128",
    "indexer_scores:heads=3,dim=64,topk=512,variant=sm90,racecheck=1",
    "indexer_scores:heads=64,dim=32,topk=512",
    "indexer_scores:heads=64,dim=128,topk=256,granularity=8",
    "indexer_scores:heads=20,dim=64,topk=16,granularity=128,block_max=128,variant=mma",
    "indexer_scores:heads=64,dim=128,topk=16,granularity=128,block_max=128,variant=sm90",
    NULL,
};

const struct compile_cells compile_cells_indexer_scores = {.shape = odd_shape,
                                                           .operators = operators};
