/* The arguments of the operator dense_lse as a table (args_table.h); smelt/dense_lse.h has their
 * meaning. */
#pragma once

#include "ops/args_table.h"
#include "smelt/dense_lse.h"

enum { SMELT__DENSE_MOST_ROWS = 1 << 30 /* of keys */ };

#define OF(name) SMELT__DENSE_LSE_##name
#define ARGS smelt_dense_lse_args

#define SYMBOLS(ROW)                                                                               \
    ROW(T, SMELT__BY_ARGS("T", "token", tokens))                                                   \
    ROW(S, SMELT__BY_ARGS("S", "row", rows))                                                       \
    ROW(H, SMELT__BY_KEY("H", "head", "heads"))                                                    \
    ROW(KV, SMELT__BY_KEY("KV", "key head", "kv_heads"))                                           \
    ROW(DQK, SMELT__BY_KEY("dqk", "element", "dqk"))                                               \
    ROW(ONE, SMELT__ONE_ELEMENT)

enum smelt__dense_lse_symbol { SYMBOLS(SMELT__NUMBER) };

static const struct smelt__scalar_row smelt__dense_lse_scalars[] = {
    {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(rows, INT64, 0, SMELT__DENSE_MOST_ROWS)},
    {SMELT__SCALAR(scale, FLOAT, 0, 0)},
    {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},
};

#define TENSORS(ROW, ...)                                                                          \
    ROW(Q, SMELT__TENSOR(q, BF16, INPUT, OF(T), OF(H), OF(DQK)), .whole_rows = 1)                  \
    ROW(K, SMELT__TENSOR(k, BF16, INPUT, OF(S), OF(KV), OF(DQK)), .whole_rows = 1)                 \
    ROW(WINDOW_BEGIN, SMELT__TENSOR(window_begin, INT32, INPUT, OF(T)))                            \
    ROW(WINDOW_END, SMELT__TENSOR(window_end, INT32, INPUT, OF(T)))                                \
    ROW(LSE, SMELT__TENSOR(lse, FP32, OUTPUT, OF(T), OF(H), OF(ONE)))

enum smelt__dense_lse_tensor { TENSORS(SMELT__NUMBER, ) };

static const struct smelt__args_table smelt__dense_lse_table = {
    SMELT__ARGS("SMELT_DENSE_LSE_ARGS_INIT", lse, SMELT__SYMBOLS, smelt__dense_lse_scalars,
                SMELT__ROWS()),
};

#include "ops/args_table_end.h"
