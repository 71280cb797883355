/* The arguments of the operator sparse_attn as tables (args_table.h); smelt/sparse_attn.h has their
 * meaning. */
#pragma once

#include "ops/args_table.h"
#include "smelt/sparse_attn.h"

enum {
    SMELT__PARTITION_ALIGNMENT = 16, /* bytes: of a forward call's workspace, each array in it */
    /* Slots a row may have, since an extent shares a word with a bucket. */
    SMELT__PARTITION_MOST_SLOTS = (1 << 28) - 1
};

/* Extents by number. */
enum smelt__sparse_attn_symbol {
    SMELT__SPARSE_ATTN_B,
    SMELT__SPARSE_ATTN_T,
    SMELT__SPARSE_ATTN_S,
    SMELT__SPARSE_ATTN_H,
    SMELT__SPARSE_ATTN_DQK,
    SMELT__SPARSE_ATTN_DV,
    SMELT__SPARSE_ATTN_WIDTH,
    SMELT__SPARSE_ATTN_LISTED, /* query_capacity */
    SMELT__SPARSE_ATTN_ONE,
};

/* Rows by number. */
enum smelt__sparse_attn_tensor {
    SMELT__SPARSE_ATTN_Q,
    SMELT__SPARSE_ATTN_KV,
    SMELT__SPARSE_ATTN_INDICES,
    SMELT__SPARSE_ATTN_TOPK_LENGTH,
    SMELT__SPARSE_ATTN_SINK,
    SMELT__SPARSE_ATTN_QUERIES,
    SMELT__SPARSE_ATTN_QUERY_COUNT,
    SMELT__SPARSE_ATTN_OUT,
    SMELT__SPARSE_ATTN_LSE,
    SMELT__SPARSE_ATTN_MAX_LOGITS,
    SMELT__SPARSE_ATTN_TENSORS
};

/* Rows of the backward pass by number. */
enum smelt__sparse_attn_grad_tensor {
    SMELT__SPARSE_ATTN_GRAD_Q,
    SMELT__SPARSE_ATTN_GRAD_KV,
    SMELT__SPARSE_ATTN_GRAD_INDICES,
    SMELT__SPARSE_ATTN_GRAD_TOPK_LENGTH,
    SMELT__SPARSE_ATTN_GRAD_SINK,
    SMELT__SPARSE_ATTN_GRAD_QUERIES,
    SMELT__SPARSE_ATTN_GRAD_QUERY_COUNT,
    SMELT__SPARSE_ATTN_GRAD_OUT,
    SMELT__SPARSE_ATTN_GRAD_LSE,
    SMELT__SPARSE_ATTN_GRAD_GRAD_OUT,
    SMELT__SPARSE_ATTN_GRAD_DQ,
    SMELT__SPARSE_ATTN_GRAD_DKV,
    SMELT__SPARSE_ATTN_GRAD_DKV_FP32,
    SMELT__SPARSE_ATTN_GRAD_DKV_SUM,
    SMELT__SPARSE_ATTN_GRAD_DSINK,
    SMELT__SPARSE_ATTN_GRAD_TENSORS
};

/* Of an args struct ARGS that has sparse_attn's numbers: sparse_scores' has, too. */
#define SMELT__SPARSE_ATTN_EXTENTS                                                                 \
    {                                                                                              \
        [SMELT__SPARSE_ATTN_B] = SMELT__BY_ARGS("B", "batch", batches),                            \
        [SMELT__SPARSE_ATTN_T] = SMELT__BY_ARGS("T", "token", tokens),                             \
        [SMELT__SPARSE_ATTN_S] = SMELT__BY_ARGS("S", "row", rows),                                 \
        [SMELT__SPARSE_ATTN_H] = SMELT__BY_KEY("H", "head", "heads"),                              \
        [SMELT__SPARSE_ATTN_DQK] = SMELT__BY_KEY("dqk", "element", "dqk"),                         \
        [SMELT__SPARSE_ATTN_DV] = SMELT__BY_KEY("dv", "element", "dv"),                            \
        [SMELT__SPARSE_ATTN_WIDTH] = SMELT__BY_ARGS("width", "slot", width),                       \
        [SMELT__SPARSE_ATTN_LISTED] = SMELT__BY_ARGS("query_capacity", "entry", query_capacity),   \
        [SMELT__SPARSE_ATTN_ONE] = SMELT__ONE_ELEMENT,                                             \
    }
#define SMELT__SPARSE_ATTN_NUMBERS                                                                 \
    {SMELT__SCALAR(batches, INT64, 0, INT32_MAX), .zero = 1},                                      \
        {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)}, {SMELT__SCALAR(rows, INT64, 0, INT32_MAX)},  \
        {SMELT__SCALAR(width, INT64, 1, SMELT__PARTITION_MOST_SLOTS), .most_key = "topk",          \
         .unless = "buckets"},                                                                     \
        {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},                                  \
        {SMELT__SCALAR(query_capacity, INT64, 0, INT32_MAX)}, {                                    \
        SMELT__SCALAR(scale, FLOAT, 0, 0)                                                          \
    }

#define OF(name) SMELT__SPARSE_ATTN_##name
#define GRAD(tensor) SMELT__SPARSE_ATTN_GRAD_##tensor
#define ARGS smelt_sparse_attn_args

static const struct smelt__symbol smelt__sparse_attn_symbols[] = SMELT__SPARSE_ATTN_EXTENTS;

static const struct smelt__scalar_row smelt__sparse_attn_scalars[] = {SMELT__SPARSE_ATTN_NUMBERS};

static const struct smelt__tensor_row smelt__sparse_attn_tensors[] = {
    [OF(Q)] = {SMELT__TENSOR(q, BF16, INPUT, OF(B), OF(T), OF(H), OF(DQK)), .whole_rows = 1},
    /* The kernels keep the step between KV rows in 32 bits. */
    [OF(KV)] = {SMELT__TENSOR(kv, BF16, INPUT, OF(B), OF(S), OF(DQK)), .whole_rows = 1,
                .most_stride = INT32_MAX},
    [OF(INDICES)] = {SMELT__TENSOR(indices, INT32, INPUT, OF(B), OF(T), OF(WIDTH))},
    [OF(TOPK_LENGTH)] = {SMELT__TENSOR(topk_length, INT32, INPUT, OF(B), OF(T), OF(ONE)),
                         .optional = 1},
    [OF(SINK)] = {SMELT__TENSOR(sink, FP32, INPUT, OF(H)), .key = "sink"},
    [OF(QUERIES)] = {SMELT__TENSOR(queries, INT32, INPUT, OF(LISTED)), .optional = 1},
    [OF(QUERY_COUNT)] = {SMELT__TENSOR(query_count, INT32, INPUT, OF(ONE)), .optional = 1},
    [OF(OUT)] = {SMELT__TENSOR(out, BF16, OUTPUT, OF(B), OF(T), OF(H), OF(DV)), .whole_rows = 1},
    [OF(LSE)] = {SMELT__TENSOR(lse, FP32, OUTPUT, OF(B), OF(T), OF(H), OF(ONE))},
    [OF(MAX_LOGITS)] = {SMELT__TENSOR(max_logits, FP32, OUTPUT, OF(B), OF(T), OF(H), OF(ONE)),
                        .optional = 1},
};

static const struct smelt__args_table smelt__sparse_attn_table = {
    SMELT__ARGS("SMELT_SPARSE_ATTN_ARGS_INIT", workspace_bytes, smelt__sparse_attn_symbols,
                smelt__sparse_attn_scalars, smelt__sparse_attn_tensors),
    SMELT__WORKSPACE(SMELT__PARTITION_ALIGNMENT),
};

#undef ARGS
#define ARGS smelt_sparse_attn_grad_args

static const struct smelt__symbol smelt__sparse_attn_grad_symbols[] = SMELT__SPARSE_ATTN_EXTENTS;

static const struct smelt__scalar_row smelt__sparse_attn_grad_scalars[] = {
    SMELT__SPARSE_ATTN_NUMBERS,
    {SMELT__SCALAR(workspace_limit, SIZE, 0, 0)},
};

static const struct smelt__tensor_row smelt__sparse_attn_grad_tensors[] = {
    [GRAD(Q)] = {SMELT__TENSOR(q, BF16, INPUT, OF(B), OF(T), OF(H), OF(DQK)), .whole_rows = 1},
    [GRAD(KV)] = {SMELT__TENSOR(kv, BF16, INPUT, OF(B), OF(S), OF(DQK)), .whole_rows = 1,
                  .most_stride = INT32_MAX},
    [GRAD(INDICES)] = {SMELT__TENSOR(indices, INT32, INPUT, OF(B), OF(T), OF(WIDTH))},
    [GRAD(TOPK_LENGTH)] = {SMELT__TENSOR(topk_length, INT32, INPUT, OF(B), OF(T), OF(ONE)),
                           .optional = 1},
    [GRAD(SINK)] = {SMELT__TENSOR(sink, FP32, INPUT, OF(H)), .key = "sink"},
    [GRAD(QUERIES)] = {SMELT__TENSOR(queries, INT32, INPUT, OF(LISTED)), .optional = 1},
    [GRAD(QUERY_COUNT)] = {SMELT__TENSOR(query_count, INT32, INPUT, OF(ONE)), .optional = 1},
    [GRAD(OUT)] = {SMELT__TENSOR(out, BF16, INPUT, OF(B), OF(T), OF(H), OF(DV)), .whole_rows = 1},
    [GRAD(LSE)] = {SMELT__TENSOR(lse, FP32, INPUT, OF(B), OF(T), OF(H), OF(ONE))},
    [GRAD(GRAD_OUT)] = {SMELT__TENSOR(grad_out, BF16, INPUT, OF(B), OF(T), OF(H), OF(DV)),
                        .whole_rows = 1},
    [GRAD(DQ)] = {SMELT__TENSOR(dq, BF16, OUTPUT, OF(B), OF(T), OF(H), OF(DQK)), .whole_rows = 1},
    [GRAD(DKV)] = {SMELT__TENSOR(dkv, BF16, OUTPUT, OF(B), OF(S), OF(DQK)), .whole_rows = 1,
                   .one_of = 1},
    [GRAD(DKV_FP32)] = {SMELT__TENSOR(dkv_fp32, FP32, OUTPUT, OF(B), OF(S), OF(DQK)),
                        .whole_rows = 1, .one_of = 1},
    [GRAD(DKV_SUM)] = {SMELT__TENSOR(dkv_sum, FP32, ACCUMULATED, OF(B), OF(S), OF(DQK)),
                       .whole_rows = 1, .one_of = 1},
    [GRAD(DSINK)] = {SMELT__TENSOR(dsink, FP32, OUTPUT, OF(H)), .key = "sink", .optional = 1},
};

static const struct smelt__args_table smelt__sparse_attn_grad_table = {
    SMELT__ARGS("SMELT_SPARSE_ATTN_GRAD_ARGS_INIT", workspace_limit,
                smelt__sparse_attn_grad_symbols, smelt__sparse_attn_grad_scalars,
                smelt__sparse_attn_grad_tensors),
    SMELT__WORKSPACE(SMELT__WORKSPACE_ALIGNMENT),
    .partition = offsetof(ARGS, partition),
    .partition_bytes = offsetof(ARGS, partition_bytes),
};

#undef ARGS
#undef OF
#undef GRAD
