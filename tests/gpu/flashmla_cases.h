/*
 * FlashMLA's test problems of its sparse prefill: shapes, given inputs, and tolerances for every
 * element. A kernel that passes can replace FlashMLA's in a program that was validated with it.
 * Their source is tests/test_flash_mla_sparse_prefill.py of deepseek-ai/FlashMLA (9241ae3); the
 * random inputs are generated here.
 *
 * Inputs: q and kv are normal numbers divided by ten, plus an offset per tensor between -0.05 and
 * 0.05, in bf16; with a scale of 0.5 a softmax is nearly uniform. A query's slots name distinct
 * rows; if there are fewer rows than slots, invalid indices follow. Sinks: normal numbers, three in
 * ten -inf and three in ten +inf. Lengths: any from 0 to topk.
 */
#pragma once

#include <math.h>

struct flashmla_case {
    int dqk;    /* 512 or 576; the value's width is 512 */
    int heads;  /* 64 or 128; the tests also use other numbers */
    int tokens; /* queries */
    int rows, topk;
    int sink, lengths; /* 1: given */
    int empty;         /* 1: one query in 44 names no row */
    int number;        /* number in the list, the seed of random numbers */
};

#define FLASHMLA_SCALE 0.5F

/* Number `number` of the list; 0 past its end. Pure. */
int flashmla_case_at(int number, struct flashmla_case *problem);

/* Values of invalid slots after the valid ones, in addition to the number of rows. */
enum { FLASHMLA_STRAYS = 7 };
extern const int flashmla_strays[FLASHMLA_STRAYS];

/* An element's error in units of the tolerance: at most 1 passes, NaN does not. For `out`, and for
 * lse and max_logits, which may be -inf. */
static inline double flashmla_out_error(double got, double expected) {
    return fabs(got - expected) / fmax(8e-4, 3.01 / 128 * fabs(expected));
}

static inline double flashmla_lse_error(double got, double expected) {
    if (isinf(expected))
        return got == expected ? 0 : INFINITY;
    return fabs(got - expected) / fmax(1e-6, 2.01 / 65536 * fabs(expected));
}
