/* The arguments of the operators sparse_gqa and sparse_gqa_scores as tables (args_table.h); smelt/sparse_gqa.h and
 * smelt/sparse_gqa_scores.h have their meaning. */
#pragma once

#include "ops/args_table.h"
#include "smelt/sparse_gqa.h"
#include "smelt/sparse_gqa_scores.h"

#define OF(name) SMELT__SPARSE_GQA_##name

/* sparse_gqa_scores has all extents but the last. G: lists of a query. */
#define EXTENTS(ROW)                                                                               \
    SMELT__LISTS_EXTENTS(ROW)                                                                      \
    ROW(HQ, SMELT__BY_KEY("Hq", "head", "heads"))                                                  \
    ROW(HKV, SMELT__BY_KEY("Hkv", "head", "kv_heads"))                                             \
    ROW(DQK, SMELT__BY_KEY("dqk", "element", "dqk"))                                               \
    ROW(G, SMELT__BY_KEY("G", "list", "kv_heads"), .when = "lists")
#define SYMBOLS(ROW) EXTENTS(ROW) ROW(DV, SMELT__BY_KEY("dv", "element", "dv"))

enum smelt__sparse_gqa_symbol { SYMBOLS(SMELT__NUMBER) };

/* What both passes and sparse_gqa_scores read, with the same numbers; `...`: the third row. */
#define INPUTS(ROW, ...)                                                                           \
    ROW(Q, SMELT__TENSOR(q, BF16, INPUT, OF(B), OF(T), OF(HQ), OF(DQK)), .whole_rows = 1)          \
    ROW(K, SMELT__TENSOR(k, BF16, INPUT, OF(B), OF(S), OF(HKV), OF(DQK)), .whole_rows = 1)         \
    ROW(__VA_ARGS__)                                                                               \
    ROW(INDICES, SMELT__TENSOR(indices, INT32, INPUT, OF(B), OF(T), OF(G), OF(WIDTH)))             \
    ROW(TOPK_LENGTH, SMELT__TENSOR(topk_length, INT32, INPUT, OF(B), OF(T), OF(G), OF(ONE)),       \
        .optional = 1)                                                                             \
    ROW(LIMIT, SMELT__TENSOR(limit, INT32, INPUT, OF(B), OF(T), OF(ONE)), .optional = 1)           \
    ROW(SINK, SMELT__TENSOR(sink, FP32, INPUT, OF(HQ)), .key = "sink")                             \
    SMELT__QUERY_LIST(ROW, OF(LISTED), OF(ONE))
#define VALUES V, SMELT__TENSOR(v, BF16, INPUT, OF(B), OF(S), OF(HKV), OF(DV)), .whole_rows = 1

#define ARGS smelt_sparse_gqa_args

#define TENSORS(ROW, ...)                                                                          \
    INPUTS(ROW, VALUES)                                                                            \
    ROW(OUT, SMELT__TENSOR(out, BF16, OUTPUT, OF(B), OF(T), OF(HQ), OF(DV)), .whole_rows = 1)      \
    ROW(LSE, SMELT__TENSOR(lse, FP32, OUTPUT, OF(B), OF(T), OF(HQ), OF(ONE)))

enum smelt__sparse_gqa_tensor { TENSORS(SMELT__NUMBER, ) };
static const struct smelt__args_table smelt__sparse_gqa_table = {
    SMELT__ARGS("SMELT_SPARSE_GQA_ARGS_INIT", workspace_bytes, SMELT__SYMBOLS,
                SMELT__SCALARS(SMELT__LISTS_NUMBERS(INT32_MAX)), SMELT__ROWS()),
    SMELT__WORKSPACE(SMELT__WORKSPACE_ALIGNMENT),
};

#undef ARGS
#undef TENSORS

/* ---- backward -------------------------------------------------------------------------------- */

#define ARGS smelt_sparse_gqa_grad_args
#define TENSORS(ROW, ...)                                                                          \
    INPUTS(ROW, VALUES)                                                                            \
    ROW(OUT, SMELT__TENSOR(out, BF16, INPUT, OF(B), OF(T), OF(HQ), OF(DV)), .whole_rows = 1)       \
    ROW(LSE, SMELT__TENSOR(lse, FP32, INPUT, OF(B), OF(T), OF(HQ), OF(ONE)))                       \
    ROW(GRAD_OUT, SMELT__TENSOR(grad_out, BF16, INPUT, OF(B), OF(T), OF(HQ), OF(DV)),              \
        .whole_rows = 1)                                                                           \
    ROW(DQ, SMELT__TENSOR(dq, BF16, OUTPUT, OF(B), OF(T), OF(HQ), OF(DQK)), .whole_rows = 1)       \
    SMELT__KEY_GRADS(ROW, DK, dk, 1, OF(B), OF(S), OF(HKV), OF(DQK))                               \
    SMELT__KEY_GRADS(ROW, DV, dv, 2, OF(B), OF(S), OF(HKV), OF(DV))                                \
    ROW(DSINK, SMELT__TENSOR(dsink, FP32, OUTPUT, OF(HQ)), .key = "sink", .optional = 1)

enum smelt__sparse_gqa_grad_tensor { TENSORS(SMELT__GRAD_NUMBER, ) };
static const struct smelt__args_table smelt__sparse_gqa_grad_table = {
    SMELT__ARGS("SMELT_SPARSE_GQA_GRAD_ARGS_INIT", workspace_bytes, SMELT__SYMBOLS,
                SMELT__SCALARS(SMELT__LISTS_NUMBERS(INT32_MAX)), SMELT__ROWS()),
    SMELT__WORKSPACE(SMELT__WORKSPACE_ALIGNMENT),
};

#undef ARGS
#undef TENSORS
#undef SYMBOLS

/* ---- sparse_gqa_scores ----------------------------------------------------------------------- */

#define ARGS smelt_sparse_gqa_scores_args

#define LSE LSE, SMELT__TENSOR(lse, FP32, INPUT, OF(B), OF(T), OF(HQ), OF(ONE))
#define TENSORS(ROW, ...)                                                                          \
    INPUTS(ROW, LSE)                                                                               \
    ROW(TARGET, SMELT__TENSOR(target, FP32, OUTPUT, OF(B), OF(T), OF(G), OF(WIDTH)))

#define SYMBOLS EXTENTS
#define NUMBER(name, ...) SMELT__SPARSE_GQA_SCORES_##name,
enum smelt__sparse_gqa_scores_tensor { TENSORS(NUMBER, ) };
static const struct smelt__args_table smelt__sparse_gqa_scores_table = {
    SMELT__ARGS("SMELT_SPARSE_GQA_SCORES_ARGS_INIT", query_capacity, SMELT__SYMBOLS,
                SMELT__SCALARS(SMELT__LISTS_NUMBERS(INT32_MAX)), SMELT__ROWS()),
};

#undef NUMBER
#undef LSE
#undef VALUES
#undef EXTENTS
#undef INPUTS
#include "ops/args_table_end.h"
