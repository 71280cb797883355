/* The compile matrix's cells of sparse_scores. */
#include <stdio.h>

#include "cells.h"

/* Head counts that do not fill a tile of 8 or 16, and that need several parts; every pair of widths
 * in turn. */
static int odd_shape(int number, char *spec, size_t size) {
    static const int heads[] = {1, 7, 24, 33, 40, 72, 112, 128, 192, 1024};
    static const int dv[] = {64, 128, 256, 512};
    enum { HEADS = sizeof heads / sizeof *heads, WIDTHS = 8, EACH = 3 /* widths per head count */ };
    if (number >= HEADS * EACH)
        return 0;
    const int h = number / EACH, w = (h * EACH + number % EACH) % WIDTHS;
    snprintf(spec, size, "sparse_scores:heads=%d,dqk=%d,dv=%d,topk=%d,sink=%d", heads[h],
             dv[w / 2] + (w % 2 ? 64 : 0), dv[w / 2], 100 * (w + 1), number % 2);
    return 1;
}

static const char *const operators[] = {
    "sparse_scores:heads=64,dqk=576,dv=512,topk=2048,variant=mma",
    "sparse_scores:heads=128,dqk=576,dv=512,topk=2048,variant=mma,warps=4",
    "sparse_scores:heads=16,dqk=192,dv=128,topk=640,variant=mma,block_keys=128,stages=2,blocks=2",
    "sparse_scores:heads=16,dqk=576,dv=512,topk=640,variant=sm90,query_buffers=1,ring_tiles=10",
    "sparse_scores:heads=64,dqk=576,dv=512,topk=640,variant=sm90,orientation=keys",
    "sparse_scores:heads=40,dqk=320,dv=256,topk=640,variant=sm90,orientation=heads,query_buffers=1",
    "sparse_scores:heads=8,dqk=512,dv=512,topk=640,variant=sm90,orientation=heads",
    "sparse_scores:heads=64,dqk=576,dv=512,topk=2048,variant=sm90,racecheck=1",
    "sparse_scores:heads=128,dqk=576,dv=512,topk=2048,variant=sm90,racecheck=1",
    "sparse_scores:heads=64,dqk=160,dv=128,topk=2048",
    "sparse_scores:heads=40,dqk=640,dv=512,topk=512",
    NULL,
};

const struct compile_cells compile_cells_sparse_scores = {.shape = odd_shape,
                                                          .operators = operators};
