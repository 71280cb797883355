/* See sparse_scores_table.h. */
#include "ops/sparse_scores_table.h"

#include "ops/sparse_attn_partition.h"
#include "ops/sparse_attn_table.h"
#include "smelt/sparse_scores.h"

#define ARGS smelt_sparse_scores_args
#define NUMBER(name) SMELT__SPARSE_SCORES_##name

enum { B, T, S, H, DQK, DV, WIDTH, LISTED, ONE }; /* enum smelt__sparse_attn_symbol */

static const struct smelt__symbol symbols[] = SMELT__SPARSE_ATTN_EXTENTS;

static const struct smelt__scalar_row scalars[] = {SMELT__SPARSE_ATTN_NUMBERS};

static const struct smelt__tensor_row rows[] = {
    [NUMBER(Q)] = {SMELT__TENSOR(q, BF16, INPUT, B, T, H, DQK), .whole_rows = 1},
    /* The kernels keep the step between KV rows in 32 bits. */
    [NUMBER(KV)] = {SMELT__TENSOR(kv, BF16, INPUT, B, S, DQK), .whole_rows = 1,
                    .most_stride = INT32_MAX},
    [NUMBER(INDICES)] = {SMELT__TENSOR(indices, INT32, INPUT, B, T, WIDTH)},
    [NUMBER(TOPK_LENGTH)] = {SMELT__TENSOR(topk_length, INT32, INPUT, B, T, ONE), .optional = 1},
    [NUMBER(SINK)] = {SMELT__TENSOR(sink, FP32, INPUT, H), .key = "sink"},
    [NUMBER(QUERIES)] = {SMELT__TENSOR(queries, INT32, INPUT, LISTED), .optional = 1},
    [NUMBER(QUERY_COUNT)] = {SMELT__TENSOR(query_count, INT32, INPUT, ONE), .optional = 1},
    [NUMBER(LSE)] = {SMELT__TENSOR(lse, FP32, INPUT, B, T, H, ONE)},
    [NUMBER(TARGET)] = {SMELT__TENSOR(target, FP32, OUTPUT, B, T, WIDTH)},
};

const struct smelt__args_table smelt__sparse_scores_table = {
    SMELT__ARGS("SMELT_SPARSE_SCORES_ARGS_INIT", query_capacity, symbols, scalars, rows),
};
