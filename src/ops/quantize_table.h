/* The arguments of the operator quantize as a table (args_table.h); smelt/quantize.h has
 * their meaning. */
#pragma once

#include "ops/args_table.h"
#include "smelt/quantize.h"

#define OF(name) SMELT__QUANTIZE_##name
#define ARGS smelt_quantize_args

#define SYMBOLS(ROW)                                                                               \
    ROW(N, SMELT__BY_ARGS("N", "row", rows))                                                       \
    ROW(D, SMELT__BY_KEY("D", "element", "dim"))                                                   \
    ROW(G, SMELT__BY_KEY("G", "group", "groups"))

enum smelt__quantize_symbol { SYMBOLS(SMELT__NUMBER) };

static const struct smelt__scalar_row smelt__quantize_scalars[] = {
    {SMELT__SCALAR(rows, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},
    {SMELT__SCALAR(reserved, INT, 0, 0)},
};

#define TENSORS(ROW, ...)                                                                          \
    ROW(X, SMELT__TENSOR(x, BF16, INPUT, OF(N), OF(D)), .whole_rows = 1)                           \
    ROW(Y, SMELT__TENSOR(y, E4M3, OUTPUT, OF(N), OF(D)), .optional = 1, .whole_rows = 1)           \
    ROW(DEQUANTIZED, SMELT__TENSOR(dequantized, BF16, OUTPUT, OF(N), OF(D)), .optional = 1,        \
        .whole_rows = 1, .may_be_nan = 1)                                                          \
    ROW(SCALE, SMELT__TENSOR(scale, FP32, OUTPUT, OF(N), OF(G)), .optional = 1)                    \
    ROW(FACTOR, SMELT__TENSOR(factor, FP32, INPUT, OF(N)), .optional = 1)

enum smelt__quantize_tensor { TENSORS(SMELT__NUMBER, ) };

static const struct smelt__args_table smelt__quantize_table = {
    SMELT__ARGS("SMELT_QUANTIZE_ARGS_INIT", factor, SMELT__SYMBOLS, smelt__quantize_scalars,
                SMELT__ROWS()),
    .flattened = "N",
};

#include "ops/args_table_end.h"
