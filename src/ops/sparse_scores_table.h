/* The arguments of the operator sparse_scores as a table (args_table.h); smelt/sparse_scores.h has
 * their meaning. */
#pragma once

#include "ops/args_table.h"
#include "ops/sparse_attn_table.h"
#include "smelt/sparse_scores.h"

/* Rows by number; what sparse_attn reads, too, has its numbers. */
enum smelt__sparse_scores_tensor {
    SMELT__SPARSE_SCORES_Q = SMELT__SPARSE_ATTN_Q,
    SMELT__SPARSE_SCORES_KV = SMELT__SPARSE_ATTN_KV,
    SMELT__SPARSE_SCORES_INDICES = SMELT__SPARSE_ATTN_INDICES,
    SMELT__SPARSE_SCORES_TOPK_LENGTH = SMELT__SPARSE_ATTN_TOPK_LENGTH,
    SMELT__SPARSE_SCORES_SINK = SMELT__SPARSE_ATTN_SINK,
    SMELT__SPARSE_SCORES_QUERIES = SMELT__SPARSE_ATTN_QUERIES,
    SMELT__SPARSE_SCORES_QUERY_COUNT = SMELT__SPARSE_ATTN_QUERY_COUNT,
    SMELT__SPARSE_SCORES_LSE,
    SMELT__SPARSE_SCORES_TARGET,
    SMELT__SPARSE_SCORES_TENSORS
};

#define OF(tensor) SMELT__SPARSE_SCORES_##tensor
#define BY(extent) SMELT__SPARSE_ATTN_##extent
#define ARGS smelt_sparse_scores_args

static const struct smelt__symbol smelt__sparse_scores_symbols[] = SMELT__SPARSE_ATTN_EXTENTS;

static const struct smelt__scalar_row smelt__sparse_scores_scalars[] = {SMELT__SPARSE_ATTN_NUMBERS};

static const struct smelt__tensor_row smelt__sparse_scores_tensors[] = {
    [OF(Q)] = {SMELT__TENSOR(q, BF16, INPUT, BY(B), BY(T), BY(H), BY(DQK)), .whole_rows = 1},
    /* The kernels keep the step between KV rows in 32 bits. */
    [OF(KV)] = {SMELT__TENSOR(kv, BF16, INPUT, BY(B), BY(S), BY(DQK)), .whole_rows = 1,
                .most_stride = INT32_MAX},
    [OF(INDICES)] = {SMELT__TENSOR(indices, INT32, INPUT, BY(B), BY(T), BY(WIDTH))},
    [OF(TOPK_LENGTH)] = {SMELT__TENSOR(topk_length, INT32, INPUT, BY(B), BY(T), BY(ONE)),
                         .optional = 1},
    [OF(SINK)] = {SMELT__TENSOR(sink, FP32, INPUT, BY(H)), .key = "sink"},
    [OF(QUERIES)] = {SMELT__TENSOR(queries, INT32, INPUT, BY(LISTED)), .optional = 1},
    [OF(QUERY_COUNT)] = {SMELT__TENSOR(query_count, INT32, INPUT, BY(ONE)), .optional = 1},
    [OF(LSE)] = {SMELT__TENSOR(lse, FP32, INPUT, BY(B), BY(T), BY(H), BY(ONE))},
    [OF(TARGET)] = {SMELT__TENSOR(target, FP32, OUTPUT, BY(B), BY(T), BY(WIDTH))},
};

static const struct smelt__args_table smelt__sparse_scores_table = {
    SMELT__ARGS("SMELT_SPARSE_SCORES_ARGS_INIT", query_capacity, smelt__sparse_scores_symbols,
                smelt__sparse_scores_scalars, smelt__sparse_scores_tensors),
};

#undef ARGS
#undef OF
#undef BY
