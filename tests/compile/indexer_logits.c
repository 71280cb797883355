/* The compile matrix's cells of indexer_logits. */
#include <stdio.h>

#include "cells.h"

/* Numbers of heads that do not fill a pair of tiles or a stage, with both widths; architectures
 * without fp8 refuse it. */
static int odd_shape(int number, char *spec, size_t size) {
    static const int heads[] = {1, 3, 8, 16, 20, 32, 64, 127, 128};
    enum { HEADS = sizeof heads / sizeof *heads };
    if (number >= HEADS * 4)
        return 0;
    snprintf(spec, size, "indexer_logits:heads=%d,dim=%d,dtype=%s", heads[number / 4],
             number % 2 ? 64 : 128, number / 2 % 2 ? "fp8" : "bf16");
    return 1;
}

static const char *const operators[] = {
    "indexer_logits:heads=64,dim=128,dtype=bf16,variant=mma",
    "indexer_logits:heads=64,dim=128,dtype=bf16,variant=mma,warps=8,blocks=1,stages=4",
    "indexer_logits:heads=32,dim=128,dtype=bf16,variant=mma,warp_keys=32,blocks=3,stages=2",
    "indexer_logits:heads=64,dim=64,dtype=bf16,variant=mma,block_queries=256",
    "indexer_logits:heads=64,dim=128,dtype=fp8,variant=sm90,warpgroups=3,columns=128",
    "indexer_logits:heads=64,dim=128,dtype=fp8,variant=sm90,warpgroups=2,columns=256",
    "indexer_logits:heads=32,dim=128,dtype=bf16,variant=sm90,warpgroups=3,columns=64",
    "indexer_logits:heads=3,dim=64,dtype=fp8,variant=sm90,racecheck=1",
    /* Groups of an even and of an odd number of heads; blocks within a thread, a quad, a warp, wider. */
    "indexer_logits:heads=64,dim=128,dtype=bf16,groups=4,block_max=8,variant=mma",
    "indexer_logits:heads=127,dim=64,dtype=bf16,groups=127,block_max=2,variant=mma",
    "indexer_logits:heads=32,dim=128,dtype=fp8,block_max=64,variant=mma",
    "indexer_logits:heads=4,dim=128,dtype=bf16,activation=none,weights=0,groups=4,block_max=128,"
    "variant=mma",
    "indexer_logits:heads=9,dim=128,dtype=fp8,groups=3,activation=none,block_max=128,variant=mma",
    "indexer_logits:heads=64,dim=128,dtype=fp8,activation=none,weights=0",
    "indexer_logits:heads=64,dim=128,dtype=fp8,block_max=8,variant=sm90",
    "indexer_logits:heads=127,dim=128,dtype=bf16,groups=127,variant=sm90",
    "indexer_logits:heads=4,dim=128,dtype=bf16,weights=0,block_max=4,variant=sm90",
    "indexer_logits:heads=9,dim=64,dtype=fp8,groups=3,activation=none,block_max=16,variant=sm90",
    /* A head for each group, blocks of keys. */
    "indexer_logits:heads=4,dim=128,dtype=bf16,activation=none,weights=0,groups=4,block_max=128",
    "indexer_logits:heads=64,dim=64,dtype=fp8,groups=64,block_max=8",
    "indexer_logits:heads=1,dim=128,dtype=fp8,block_max=32,warpgroups=3",
    "indexer_logits:heads=16,dim=128,dtype=bf16,groups=16,block_max=16,racecheck=1",
    /* The narrowest keys, of e4m3 with zeros after them. */
    "indexer_logits:heads=64,dim=32,dtype=bf16",
    "indexer_logits:heads=64,dim=32,dtype=fp8",
    "indexer_logits:heads=20,dim=32,dtype=fp8,variant=mma",
    "indexer_logits:heads=9,dim=32,dtype=fp8,candidate_block=8",
    /* Listed keys. */
    "indexer_logits:heads=64,dim=128,dtype=fp8,candidate_block=8",
    "indexer_logits:heads=64,dim=128,dtype=bf16,candidate_block=8,variant=mma",
    "indexer_logits:heads=20,dim=64,dtype=fp8,groups=4,candidate_block=128,variant=mma",
    "indexer_logits:heads=4,dim=128,dtype=bf16,weights=0,activation=none,groups=2,candidate_block="
    "4",
    /* And the largest logits of their blocks: within a warp's slots, and wider. */
    "indexer_logits:heads=64,dim=128,dtype=fp8,block_max=8,candidate_block=8",
    "indexer_logits:heads=128,dim=128,dtype=bf16,block_max=128,candidate_block=128",
    "indexer_logits:heads=8,dim=128,dtype=bf16,groups=8,block_max=32,candidate_block=64,variant="
    "mma",
    NULL,
};

const struct compile_cells compile_cells_indexer_logits = {.shape = odd_shape,
                                                           .operators = operators};
