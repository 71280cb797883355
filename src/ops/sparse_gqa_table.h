/* The arguments of the operators sparse_gqa and sparse_gqa_scores as tables (args_table.h); smelt/sparse_gqa.h has their
 * meaning. A table for each value of the key `lists`, since the lists of a query depend on it. */
#pragma once

#include "ops/args_table.h"
#include "smelt/sparse_gqa.h"
#include "smelt/sparse_gqa_scores.h"

/* Extents by number. */
enum smelt__sparse_gqa_symbol {
    SMELT__SPARSE_GQA_B,
    SMELT__SPARSE_GQA_T,
    SMELT__SPARSE_GQA_S,
    SMELT__SPARSE_GQA_HQ,
    SMELT__SPARSE_GQA_HKV,
    SMELT__SPARSE_GQA_DQK,
    SMELT__SPARSE_GQA_G,
    SMELT__SPARSE_GQA_WIDTH,
    SMELT__SPARSE_GQA_LISTED, /* query_capacity */
    SMELT__SPARSE_GQA_ONE,
    SMELT__SPARSE_GQA_DV, /* not of sparse_gqa_scores */
};

/* Rows by number; those of the inputs are the backward pass's, too, and sparse_gqa_scores', except V. */
enum smelt__sparse_gqa_tensor {
    SMELT__SPARSE_GQA_Q,
    SMELT__SPARSE_GQA_K,
    SMELT__SPARSE_GQA_V,
    SMELT__SPARSE_GQA_INDICES,
    SMELT__SPARSE_GQA_TOPK_LENGTH,
    SMELT__SPARSE_GQA_LIMIT,
    SMELT__SPARSE_GQA_SINK,
    SMELT__SPARSE_GQA_QUERIES,
    SMELT__SPARSE_GQA_QUERY_COUNT,
    SMELT__SPARSE_GQA_OUT,
    SMELT__SPARSE_GQA_LSE,
    SMELT__SPARSE_GQA_TENSORS
};
enum smelt__sparse_gqa_scores_tensor {
    SMELT__SPARSE_GQA_SCORES_LSE = SMELT__SPARSE_GQA_V,
    SMELT__SPARSE_GQA_SCORES_TARGET = SMELT__SPARSE_GQA_OUT,
};
enum smelt__sparse_gqa_grad_tensor {
    SMELT__SPARSE_GQA_GRAD_OUT = SMELT__SPARSE_GQA_OUT,
    SMELT__SPARSE_GQA_GRAD_LSE,
    SMELT__SPARSE_GQA_GRAD_GRAD_OUT,
    SMELT__SPARSE_GQA_GRAD_DQ,
    SMELT__SPARSE_GQA_GRAD_DK,
    SMELT__SPARSE_GQA_GRAD_DK_FP32,
    SMELT__SPARSE_GQA_GRAD_DK_SUM,
    SMELT__SPARSE_GQA_GRAD_DV,
    SMELT__SPARSE_GQA_GRAD_DV_FP32,
    SMELT__SPARSE_GQA_GRAD_DV_SUM,
    SMELT__SPARSE_GQA_GRAD_DSINK,
    SMELT__SPARSE_GQA_GRAD_TENSORS
};

#define OF(name) SMELT__SPARSE_GQA_##name

/* Of the struct ARGS; `lists`: the row of G; and those of sparse_gqa alone. */
#define EXTENTS(lists, ...)                                                                        \
    {                                                                                              \
        [OF(B)] = SMELT__BY_ARGS("B", "batch", batches),                                           \
        [OF(T)] = SMELT__BY_ARGS("T", "token", tokens),                                            \
        [OF(S)] = SMELT__BY_ARGS("S", "row", rows),                                                \
        [OF(HQ)] = SMELT__BY_KEY("Hq", "head", "heads"),                                           \
        [OF(HKV)] = SMELT__BY_KEY("Hkv", "head", "kv_heads"),                                      \
        [OF(DQK)] = SMELT__BY_KEY("dqk", "element", "dqk"), [OF(G)] = lists,                       \
        [OF(WIDTH)] = SMELT__BY_ARGS("width", "slot", width),                                      \
        [OF(LISTED)] = SMELT__BY_ARGS("query_capacity", "entry", query_capacity),                  \
        [OF(ONE)] = SMELT__ONE_ELEMENT, __VA_ARGS__                                                \
    }
#define VALUES [OF(DV)] = SMELT__BY_KEY("dv", "element", "dv")
#define SHARED                                                                                     \
    { .letter = "G", .word = "list", .plus = 1 }
#define OF_KV_HEADS SMELT__BY_KEY("G", "list", "kv_heads")

#define NUMBERS                                                                                    \
    {SMELT__SCALAR(batches, INT64, 0, INT32_MAX), .zero = 1},                                      \
        {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)}, {SMELT__SCALAR(rows, INT64, 0, INT32_MAX)},  \
        {SMELT__SCALAR(width, INT64, 1, INT32_MAX), .most_key = "topk"},                           \
        {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},                                  \
        {SMELT__SCALAR(query_capacity, INT64, 0, INT32_MAX)}, {                                    \
        SMELT__SCALAR(scale, FLOAT, 0, 0)                                                          \
    }

/* What both passes and sparse_gqa_scores read, with the same numbers. */
#define INPUTS                                                                                     \
    [OF(Q)] = {SMELT__TENSOR(q, BF16, INPUT, OF(B), OF(T), OF(HQ), OF(DQK)), .whole_rows = 1},     \
    [OF(K)] = {SMELT__TENSOR(k, BF16, INPUT, OF(B), OF(S), OF(HKV), OF(DQK)), .whole_rows = 1},    \
    [OF(INDICES)] = {SMELT__TENSOR(indices, INT32, INPUT, OF(B), OF(T), OF(G), OF(WIDTH))},        \
    [OF(TOPK_LENGTH)] = {SMELT__TENSOR(topk_length, INT32, INPUT, OF(B), OF(T), OF(G), OF(ONE)),   \
                         .optional = 1},                                                           \
    [OF(LIMIT)] = {SMELT__TENSOR(limit, INT32, INPUT, OF(B), OF(T), OF(ONE)), .optional = 1},      \
    [OF(SINK)] = {SMELT__TENSOR(sink, FP32, INPUT, OF(HQ)), .key = "sink"},                        \
    [OF(QUERIES)] = {SMELT__TENSOR(queries, INT32, INPUT, OF(LISTED)), .optional = 1},             \
    [OF(QUERY_COUNT)] = {SMELT__TENSOR(query_count, INT32, INPUT, OF(ONE)), .optional = 1}

#define ARGS smelt_sparse_gqa_args

static const struct smelt__symbol smelt__sparse_gqa_symbols[] = EXTENTS(SHARED, VALUES),
                                  smelt__sparse_gqa_kv_symbols[] = EXTENTS(OF_KV_HEADS, VALUES);

static const struct smelt__scalar_row smelt__sparse_gqa_scalars[] = {NUMBERS};

static const struct smelt__tensor_row smelt__sparse_gqa_tensors[] = {
    INPUTS,
    [OF(V)] = {SMELT__TENSOR(v, BF16, INPUT, OF(B), OF(S), OF(HKV), OF(DV)), .whole_rows = 1},
    [OF(OUT)] = {SMELT__TENSOR(out, BF16, OUTPUT, OF(B), OF(T), OF(HQ), OF(DV)), .whole_rows = 1},
    [OF(LSE)] = {SMELT__TENSOR(lse, FP32, OUTPUT, OF(B), OF(T), OF(HQ), OF(ONE))},
};

#define TABLE(symbols)                                                                             \
    {                                                                                              \
        SMELT__ARGS("SMELT_SPARSE_GQA_ARGS_INIT", workspace_bytes, symbols,                        \
                    smelt__sparse_gqa_scalars, smelt__sparse_gqa_tensors),                         \
            SMELT__WORKSPACE(SMELT__WORKSPACE_ALIGNMENT),                                          \
    }
static const struct smelt__args_table smelt__sparse_gqa_table[] = {
    TABLE(smelt__sparse_gqa_symbols), /* lists=shared */
    TABLE(smelt__sparse_gqa_kv_symbols),
};

#undef ARGS
#undef TABLE

/* ---- backward -------------------------------------------------------------------------------- */

#define ARGS smelt_sparse_gqa_grad_args
#define GRAD(tensor) SMELT__SPARSE_GQA_GRAD_##tensor

static const struct smelt__symbol smelt__sparse_gqa_grad_symbols[] = EXTENTS(SHARED, VALUES),
                                  smelt__sparse_gqa_kv_grad_symbols[] =
                                      EXTENTS(OF_KV_HEADS, VALUES);

static const struct smelt__scalar_row smelt__sparse_gqa_grad_scalars[] = {NUMBERS};

#define KEY_ROWS(tensor, element, role, columns, number)                                           \
    {                                                                                              \
        SMELT__TENSOR(tensor, element, role, OF(B), OF(S), OF(HKV), columns), .whole_rows = 1,     \
                                                                              .one_of = number     \
    }

static const struct smelt__tensor_row smelt__sparse_gqa_grad_tensors[] = {
    INPUTS,
    [OF(V)] = {SMELT__TENSOR(v, BF16, INPUT, OF(B), OF(S), OF(HKV), OF(DV)), .whole_rows = 1},
    [GRAD(OUT)] = {SMELT__TENSOR(out, BF16, INPUT, OF(B), OF(T), OF(HQ), OF(DV)), .whole_rows = 1},
    [GRAD(LSE)] = {SMELT__TENSOR(lse, FP32, INPUT, OF(B), OF(T), OF(HQ), OF(ONE))},
    [GRAD(GRAD_OUT)] = {SMELT__TENSOR(grad_out, BF16, INPUT, OF(B), OF(T), OF(HQ), OF(DV)),
                        .whole_rows = 1},
    [GRAD(DQ)] = {SMELT__TENSOR(dq, BF16, OUTPUT, OF(B), OF(T), OF(HQ), OF(DQK)), .whole_rows = 1},
    [GRAD(DK)] = KEY_ROWS(dk, BF16, OUTPUT, OF(DQK), 1),
    [GRAD(DK_FP32)] = KEY_ROWS(dk_fp32, FP32, OUTPUT, OF(DQK), 1),
    [GRAD(DK_SUM)] = KEY_ROWS(dk_sum, FP32, ACCUMULATED, OF(DQK), 1),
    [GRAD(DV)] = KEY_ROWS(dv, BF16, OUTPUT, OF(DV), 2),
    [GRAD(DV_FP32)] = KEY_ROWS(dv_fp32, FP32, OUTPUT, OF(DV), 2),
    [GRAD(DV_SUM)] = KEY_ROWS(dv_sum, FP32, ACCUMULATED, OF(DV), 2),
    [GRAD(DSINK)] = {SMELT__TENSOR(dsink, FP32, OUTPUT, OF(HQ)), .key = "sink", .optional = 1},
};

#define TABLE(symbols)                                                                             \
    {                                                                                              \
        SMELT__ARGS("SMELT_SPARSE_GQA_GRAD_ARGS_INIT", workspace_bytes, symbols,                   \
                    smelt__sparse_gqa_grad_scalars, smelt__sparse_gqa_grad_tensors),               \
            SMELT__WORKSPACE(SMELT__WORKSPACE_ALIGNMENT),                                          \
    }
static const struct smelt__args_table smelt__sparse_gqa_grad_table[] = {
    TABLE(smelt__sparse_gqa_grad_symbols), /* lists=shared */
    TABLE(smelt__sparse_gqa_kv_grad_symbols),
};

#undef ARGS
#undef TABLE
#undef GRAD
#undef KEY_ROWS

/* ---- sparse_gqa_scores ----------------------------------------------------------------------- */

#define ARGS smelt_sparse_gqa_scores_args
#define SCORES(tensor) SMELT__SPARSE_GQA_SCORES_##tensor

static const struct smelt__symbol smelt__sparse_gqa_scores_symbols[] = EXTENTS(SHARED, ),
                                  smelt__sparse_gqa_kv_scores_symbols[] = EXTENTS(OF_KV_HEADS, );

static const struct smelt__scalar_row smelt__sparse_gqa_scores_scalars[] = {NUMBERS};

static const struct smelt__tensor_row smelt__sparse_gqa_scores_tensors[] = {
    INPUTS,
    [SCORES(LSE)] = {SMELT__TENSOR(lse, FP32, INPUT, OF(B), OF(T), OF(HQ), OF(ONE))},
    [SCORES(TARGET)] = {SMELT__TENSOR(target, FP32, OUTPUT, OF(B), OF(T), OF(G), OF(WIDTH))},
};

#define TABLE(symbols)                                                                             \
    {                                                                                              \
        SMELT__ARGS("SMELT_SPARSE_GQA_SCORES_ARGS_INIT", query_capacity, symbols,                  \
                    smelt__sparse_gqa_scores_scalars, smelt__sparse_gqa_scores_tensors)            \
    }
static const struct smelt__args_table smelt__sparse_gqa_scores_table[] = {
    TABLE(smelt__sparse_gqa_scores_symbols), /* lists=shared */
    TABLE(smelt__sparse_gqa_kv_scores_symbols),
};

#undef ARGS
#undef TABLE
#undef SCORES
#undef VALUES
#undef OF
#undef EXTENTS
#undef SHARED
#undef OF_KV_HEADS
#undef NUMBERS
#undef INPUTS
