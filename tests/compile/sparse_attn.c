/* The compile matrix's cells of sparse_attn. */
#include <stdio.h>

#include "cells.h"

/* Head counts that do not fill a tile of 16, with every pair of widths; tiles, registers and shared
 * memory depend on these. topk (a loop bound and the size of a ring) and the sink vary with them,
 * so that each occurs with each head count and each width. The backward pass, which does not depend
 * on topk, has the same shapes; every second one is deterministic. */
static int odd_shape(int number, char *spec, size_t size) {
    static const int heads[] = {1, 7, 24, 40, 80, 112, 128, 192};
    static const int dv[] = {64, 128, 256, 512};
    static const int topk[] = {1, 100, 2048};
    enum { HEADS = 8, WIDTHS = 8, LENGTHS = 3, PASSES = 2 };
    const int backward = number % PASSES, w = number / PASSES % WIDTHS;
    const int h = number / PASSES / WIDTHS, variation = h + w + w / 2;
    if (h >= HEADS)
        return 0;
    snprintf(spec, size, "sparse_attn:heads=%d,dqk=%d,dv=%d,topk=%d,sink=%d%s%s", heads[h],
             dv[w / 2] + (w % 2 ? 64 : 0), dv[w / 2], topk[(h + w) % LENGTHS], variation % 2,
             backward ? ",passes=backward" : "",
             backward && variation % 4 < 2 ? ",deterministic=1" : "");
    return 1;
}

/* Knobs for comparisons must compile as well. */
static const char *const operators[] = {
    "sparse_attn:heads=64,dqk=576,dv=512,topk=2048,compact=0",
    "sparse_attn:heads=8,dqk=512,dv=512,topk=640,sink=1,compact=0",
    "sparse_attn:heads=64,dqk=576,dv=512,topk=2048,variant=mma",
    "sparse_attn:heads=64,dqk=576,dv=512,topk=2048,stages=2",
    "sparse_attn:heads=16,dqk=512,dv=512,topk=640,sink=1,stages=2",
    "sparse_attn:heads=8,dqk=576,dv=512,topk=2048,stages=2",
    "sparse_attn:heads=8,dqk=576,dv=512,topk=2048,part_tiles=2",
    "sparse_attn:heads=16,dqk=512,dv=512,topk=640,sink=1,part_tiles=2",
    "sparse_attn:heads=32,dqk=576,dv=512,topk=2048,part_tiles=4",
    "sparse_attn:heads=32,dqk=512,dv=512,topk=1152,sink=1,part_tiles=4",
    "sparse_attn:heads=24,dqk=576,dv=512,topk=2048,stages=2",
    "sparse_attn:heads=64,dqk=576,dv=512,topk=2048,racecheck=1",
    "sparse_attn:heads=16,dqk=512,dv=512,topk=640,sink=1,racecheck=1",
    "sparse_attn:heads=64,dqk=576,dv=512,topk=2048,pv_overlap=0",
    "sparse_attn:heads=128,dqk=576,dv=512,topk=2048,pv_overlap=26",
    "sparse_attn:heads=32,dqk=512,dv=512,topk=640,sink=1,gather_registers=88",
    "sparse_attn:heads=64,dqk=160,dv=128,topk=2048,passes=both",
    "sparse_attn:heads=8,dqk=336,dv=304,topk=512,sink=1,deterministic=1,passes=both",
    "sparse_attn:heads=24,dqk=80,dv=80,topk=512,deterministic=1,passes=both",
    "sparse_attn:heads=16,dqk=48,dv=16,topk=512,passes=both",
    "sparse_attn:heads=64,dqk=1024,dv=512,topk=512,passes=both",
    NULL,
};

static const char *const tuned[] = {
    "sparse_attn_fwd:heads=64,dqk=576,dv=512,topk=2048,variant=sm90",
    "sparse_attn_fwd:heads=64,dqk=512,dv=512,topk=640,sink=1,variant=sm90",
    "sparse_attn_fwd:heads=32,dqk=576,dv=512,topk=2048,variant=sm90",
    "sparse_attn_fwd:heads=8,dqk=512,dv=512,topk=512,variant=sm90",
    NULL,
};

/* Kernels that not every operator has. */
static const char *const kernels[] = {
    "sparse_attn_partition:pass=count",
    "sparse_attn_partition:pass=place",
    "attention_lists:pass=group",
    "attention_lists:pass=transpose",
    "sparse_attn_bwd_sum:dqk=64",
    "sparse_attn_bwd_sum:dqk=192",
    "sparse_attn_bwd_sum:dqk=576",
    "sparse_attn_bwd_sum:dqk=1008",
    NULL,
};

const struct compile_cells compile_cells_sparse_attn = {
    .shape = odd_shape, .operators = operators, .tuned = tuned, .kernels = kernels};
