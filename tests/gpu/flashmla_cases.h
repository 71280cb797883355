/*
 * The problems that FlashMLA tests its sparse prefill on, as data: shapes, which inputs are given,
 * and the tolerances that every single element has to meet. What it is for: a kernel that passes
 * here can take FlashMLA's place in a program that was accepted with that one. Their description is
 * tests/test_flash_mla_sparse_prefill.py of deepseek-ai/FlashMLA (9241ae3); the inputs are our own.
 *
 * Inputs: q and kv are normal numbers over ten and one offset a tensor, between -0.05 and 0.05, all
 * in bf16; with a scale of 0.5 a softmax is nearly even. A query's slots name distinct rows; where
 * there are fewer rows than slots, numbers of no row stand behind them. Sinks: normal numbers,
 * three in ten -inf and three in ten +inf. Lengths: any from 0 to topk.
 */
#pragma once

#include <math.h>

struct flashmla_case {
    int dqk;    /* 512 or 576; the value's width is 512 */
    int heads;  /* 64 or 128; they pass at any other number, too */
    int tokens; /* queries */
    int rows, topk;
    int sink, lengths; /* 1: given */
    int empty;         /* 1: one query in forty-four names no row at all */
    int number;        /* in the list: what random numbers are made from */
};

#define FLASHMLA_SCALE 0.5F

/* Number `number` of the list; 0 past its end. Pure. */
int flashmla_case_at(int number, struct flashmla_case *problem);

/* Slots that name no row, behind the valid ones: what they may say beside the number of rows. */
enum { FLASHMLA_STRAYS = 7 };
extern const int flashmla_strays[FLASHMLA_STRAYS];

/* How far an element is off, in units of what is allowed: at most 1 is right, and NaN is not. `out`
 * against the true value; lse and max_logits likewise, where both may be -inf. */
static inline double flashmla_out_error(double got, double expected) {
    return fabs(got - expected) / fmax(8e-4, 3.01 / 128 * fabs(expected));
}

static inline double flashmla_lse_error(double got, double expected) {
    if (isinf(expected))
        return got == expected ? 0 : INFINITY;
    return fabs(got - expected) / fmax(1e-6, 2.01 / 65536 * fabs(expected));
}
