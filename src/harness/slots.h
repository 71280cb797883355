/*
 * The slots of problems whose queries have index rows [T,width] and optionally a topk_length [T,1]: their
 * contents and validity (docs/operators.md, "Valid slots"). Where entries name several rows each, a slot is
 * one of them.
 */
#pragma once

#include "harness/footprint.h"
#include "harness/problem.h"

/* Row numbers of both tensors in the operator's table. */
struct smelt__slots {
    int indices, topk_length;
    int (*granularity)(const void *spec); /* rows of an entry; NULL: 1 */
    int limit; /* optional tensor [T,1]: rows from it on are masked; 0: the operator has none */
};

/* Fills indices and topk_length from the problem's options, and the limits. */
void smelt__slots_fill(struct smelt__problem *problem, const struct smelt__slots *slots);

/* The row that slot i of a query names, or -1 where it is masked. */
int64_t smelt__slots_row(const struct smelt__problem *problem, const struct smelt__slots *slots,
                         int64_t query, int64_t i);

/* The number of a query's slots, masked ones included. The second function: whether any of them is valid. */
int64_t smelt__slots_count(const struct smelt__problem *problem, const struct smelt__slots *slots);
int smelt__slots_valid(const struct smelt__problem *problem, const struct smelt__slots *slots,
                       int64_t query);

/* Marks the rows that a valid slot names (`used`: [rows]) and counts the valid slots (the problem's
 * valid_slots). 0; -1: out of memory. */
int smelt__slots_mark(struct smelt__problem *problem, const struct smelt__slots *slots,
                      uint8_t *used);

/* Adds to the footprints the indices that the computation may read, the rows of tensor `keys` that valid slots name,
 * and the elements of tensor `grad` [T,slots] of valid slots; grad 0: there is no such tensor. */
void smelt__slots_footprint(const struct smelt__problem *problem, const struct smelt__slots *slots,
                            int keys, int grad, struct smelt__footprints *footprints);
