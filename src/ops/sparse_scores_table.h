/* The arguments of the operator sparse_scores as a table (args_table.h); smelt/sparse_scores.h has
 * their meaning. */
#pragma once

#include "ops/args_table.h"
#include "ops/sparse_attn_table.h"
#include "smelt/sparse_scores.h"

#define OF(tensor) SMELT__SPARSE_SCORES_##tensor
#define BY(extent) SMELT__SPARSE_ATTN_##extent
#define ARGS smelt_sparse_scores_args

#define SYMBOLS SMELT__SPARSE_ATTN_EXTENTS

static const struct smelt__scalar_row smelt__sparse_scores_scalars[] = {SMELT__SPARSE_ATTN_NUMBERS};

#define TENSORS(ROW, ...)                                                                          \
    SMELT__SPARSE_ATTN_INPUTS(ROW)                                                                 \
    ROW(LSE, SMELT__TENSOR(lse, FP32, INPUT, BY(B), BY(T), BY(H), BY(ONE)))                        \
    ROW(TARGET, SMELT__TENSOR(target, FP32, OUTPUT, BY(B), BY(T), BY(WIDTH)))

enum smelt__sparse_scores_tensor { TENSORS(SMELT__NUMBER, ) };

static const struct smelt__args_table smelt__sparse_scores_table = {
    SMELT__ARGS("SMELT_SPARSE_SCORES_ARGS_INIT", query_capacity, SMELT__SYMBOLS,
                smelt__sparse_scores_scalars, SMELT__ROWS()),
};

#undef BY
#include "ops/args_table_end.h"
