/* The arguments of the operator dense_lse as a table (args_table.h); smelt/dense_lse.h has their
 * meaning. */
#pragma once

#include "ops/args_table.h"
#include "smelt/dense_lse.h"

/* Extents by number. */
enum smelt__dense_lse_symbol {
    SMELT__DENSE_LSE_T,
    SMELT__DENSE_LSE_S,
    SMELT__DENSE_LSE_H,
    SMELT__DENSE_LSE_KV,
    SMELT__DENSE_LSE_DQK,
    SMELT__DENSE_LSE_ONE,
};

/* Rows by number. */
enum smelt__dense_lse_tensor {
    SMELT__DENSE_LSE_Q,
    SMELT__DENSE_LSE_K,
    SMELT__DENSE_LSE_WINDOW_BEGIN,
    SMELT__DENSE_LSE_WINDOW_END,
    SMELT__DENSE_LSE_LSE,
    SMELT__DENSE_LSE_TENSORS
};

enum { SMELT__DENSE_MOST_ROWS = 1 << 30 /* of keys */ };

#define OF(name) SMELT__DENSE_LSE_##name
#define ARGS smelt_dense_lse_args

static const struct smelt__symbol smelt__dense_lse_symbols[] = {
    [OF(T)] = SMELT__BY_ARGS("T", "token", tokens),
    [OF(S)] = SMELT__BY_ARGS("S", "row", rows),
    [OF(H)] = SMELT__BY_KEY("H", "head", "heads"),
    [OF(KV)] = SMELT__BY_KEY("KV", "key head", "kv_heads"),
    [OF(DQK)] = SMELT__BY_KEY("dqk", "element", "dqk"),
    [OF(ONE)] = SMELT__ONE_ELEMENT,
};

static const struct smelt__scalar_row smelt__dense_lse_scalars[] = {
    {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(rows, INT64, 0, SMELT__DENSE_MOST_ROWS)},
    {SMELT__SCALAR(scale, FLOAT, 0, 0)},
    {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},
};

static const struct smelt__tensor_row smelt__dense_lse_tensors[] = {
    [OF(Q)] = {SMELT__TENSOR(q, BF16, INPUT, OF(T), OF(H), OF(DQK)), .whole_rows = 1},
    [OF(K)] = {SMELT__TENSOR(k, BF16, INPUT, OF(S), OF(KV), OF(DQK)), .whole_rows = 1},
    [OF(WINDOW_BEGIN)] = {SMELT__TENSOR(window_begin, INT32, INPUT, OF(T))},
    [OF(WINDOW_END)] = {SMELT__TENSOR(window_end, INT32, INPUT, OF(T))},
    [OF(LSE)] = {SMELT__TENSOR(lse, FP32, OUTPUT, OF(T), OF(H), OF(ONE))},
};

static const struct smelt__args_table smelt__dense_lse_table = {
    SMELT__ARGS("SMELT_DENSE_LSE_ARGS_INIT", lse, smelt__dense_lse_symbols,
                smelt__dense_lse_scalars, smelt__dense_lse_tensors),
};

#undef ARGS
#undef OF
