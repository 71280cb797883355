/* The compile matrix's cells of indexer_bwd. */
#include <stdio.h>

#include "cells.h"

/* Numbers of heads that do not fill tiles and groups, with both widths, deterministic or not. */
static int odd_shape(int number, char *spec, size_t size) {
    static const int heads[] = {1, 5, 8, 16, 20, 32, 48, 64, 72, 127, 128};
    enum { HEADS = sizeof heads / sizeof *heads };
    if (number >= HEADS * 4)
        return 0;
    snprintf(spec, size, "indexer_bwd:heads=%d,dim=%d,topk=2048%s", heads[number / 4],
             number % 2 ? 64 : 128, number / 2 % 2 ? ",deterministic=1" : "");
    return 1;
}

static const char *const operators[] = {
    "indexer_bwd:heads=64,dim=128,topk=2048,variant=mma",
    "indexer_bwd:heads=64,dim=128,topk=2048,variant=mma,stages=3,blocks=1",
    "indexer_bwd:heads=64,dim=64,topk=2048,variant=mma,group=2,stages=4",
    "indexer_bwd:heads=64,dim=32,topk=2048,deterministic=1",
    "indexer_bwd:heads=32,dim=128,topk=2048,variant=mma,group=1",
    "indexer_bwd:heads=8,dim=128,topk=512,variant=mma,group=8,deterministic=1",
    "indexer_bwd:heads=128,dim=128,topk=1024,variant=mma,deterministic=1",
    "indexer_bwd:heads=64,dim=128,topk=2048,variant=sm90,group=1",
    "indexer_bwd:heads=16,dim=64,topk=2048,variant=sm90,group=2,deterministic=1",
    "indexer_bwd:heads=64,dim=128,topk=2048,variant=sm90,main.racecheck=1",
    "indexer_bwd:heads=1,dim=128,topk=16,activation=none",
    "indexer_bwd:heads=64,dim=64,topk=2048,activation=none,variant=sm90",
    NULL,
};

const struct compile_cells compile_cells_indexer_bwd = {.shape = odd_shape, .operators = operators};
