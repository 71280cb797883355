/* Matrices of scores with many distributions, for the operators that select from them. */
#pragma once

#include "harness/problem.h"
#include "smelt/topk_select.h"

enum smelt__topk_data {
    SMELT__TOPK_GAUSSIAN = 0,
    SMELT__TOPK_EQUAL,      /* all the same */
    SMELT__TOPK_ZEROS,      /* half of them 0, as max(0, x) makes them */
    SMELT__TOPK_NEGATIVE,   /* half of them 0 or -0, the others below */
    SMELT__TOPK_NARROW,     /* from 1 to 1.01 */
    SMELT__TOPK_INCREASING, /* by column */
    SMELT__TOPK_DECREASING,
    SMELT__TOPK_CORRELATED, /* neighbours are alike */
    SMELT__TOPK_BF16,       /* Gaussian, rounded to bf16 */
    SMELT__TOPK_LEVELS,     /* Gaussian, rounded to whole numbers */
    SMELT__TOPK_PERIODIC,   /* periodic by column modulo 32, with slightly different largest
                               elements */
    SMELT__TOPK_DECOY, /* by row, large or small at the columns of the kernels' first two samples of
                          whole rows */
    SMELT__TOPK_PLATEAU,  /* Gaussian, but the same large number at all columns of their first
                            sample */
    SMELT__TOPK_ADJACENT, /* by row, the numbers adjacent to -0 or to 1, each many times */
    SMELT__TOPK_LOWEST,   /* the lowest number, and more often 64 slightly larger ones */
    SMELT__TOPK_SPECIAL,  /* by row: NaN, infinities, zeros of both signs, subnormals, any bits */
    SMELT__TOPK_DATA_KINDS
};

/* "gaussian", ...; ended by NULL. */
extern const char *const smelt__topk_data_names[SMELT__TOPK_DATA_KINDS + 1];

/* Fills the matrix, tensor number `tensor` of the problem, [T,S] or [T,groups,S], fp32 or bf16. Elements
 * outside a query's window are +inf, larger than those inside. */
void smelt__topk_data_fill(struct smelt__problem *problem, int tensor, int64_t groups,
                           enum smelt__topk_data data,
                           void (*window)(const smelt_topk_select_args *args, int64_t query,
                                          int64_t *begin, int64_t *end));
