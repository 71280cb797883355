/*
 * The slots of problems whose queries have index rows, and perhaps a topk_length each: what they
 * hold, and which are valid (docs/operators.md, "Valid slots"). For operators with batches
 * ([B,T,width] and [B,T,1]) and without ([T,width] and [T,1]); queries are numbered b * T + t.
 */
#pragma once

#include "harness/footprint.h"
#include "harness/problem.h"

/* The rows of both in the operator's table. */
struct smelt__slots {
    int indices, topk_length;
};

/* Fills both from the problem's options. */
void smelt__slots_fill(struct smelt__problem *problem, const struct smelt__slots *slots);

/* The row that slot i of a query names, or -1 where it is masked. */
int64_t smelt__slots_row(const struct smelt__problem *problem, const struct smelt__slots *slots,
                         int64_t query, int64_t i);

/* Says of each row whether some valid slot names it (`used`: [rows]), and counts those slots: the
 * problem's valid_slots. 0, or -1 when memory is short. */
int smelt__slots_mark(struct smelt__problem *problem, const struct smelt__slots *slots,
                      uint8_t *used);

/* What of both a query's computation may read. */
void smelt__slots_touch(const struct smelt__problem *problem, const struct smelt__slots *slots,
                        int64_t query, struct smelt__footprints *footprints);
