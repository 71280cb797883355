/* The arguments of the tests' toy operator as tables (args_table.h); smelt/toy.h has their meaning. */
#pragma once

#include "ops/args_table.h"
#include "smelt/toy.h"

#define OF(name) SMELT__TOY_##name
#define SYMBOLS(ROW)                                                                               \
    ROW(T, SMELT__BY_ARGS("T", "token", tokens))                                                   \
    ROW(WIDTH, SMELT__BY_KEY("width", "element", "width"))
enum smelt__toy_symbol { SYMBOLS(SMELT__NUMBER) };
#define SCALARS                                                                                    \
    {                                                                                              \
        {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)}, {                                            \
            SMELT__SCALAR(factor, FLOAT, 0, 0)                                                     \
        }                                                                                          \
    }

#define ARGS smelt_toy_args
static const struct smelt__scalar_row smelt__toy_scalars[] = SCALARS;
#define TENSORS(ROW, ...)                                                                          \
    ROW(X, SMELT__TENSOR(x, FP32, INPUT, OF(T), OF(WIDTH)))                                        \
    ROW(OUT, SMELT__TENSOR(out, FP32, OUTPUT, OF(T), OF(WIDTH)))
enum smelt__toy_tensor { TENSORS(SMELT__NUMBER, ) };
static const struct smelt__args_table smelt__toy_table = {
    SMELT__ARGS("SMELT_TOY_ARGS_INIT", out, SMELT__SYMBOLS, smelt__toy_scalars, SMELT__ROWS()),
};

#undef ARGS
#undef TENSORS
#define ARGS smelt_toy_grad_args
static const struct smelt__scalar_row smelt__toy_grad_scalars[] = SCALARS;
#define TENSORS(ROW, ...)                                                                          \
    ROW(GRAD, SMELT__TENSOR(grad, FP32, INPUT, OF(T), OF(WIDTH)))                                  \
    ROW(DX, SMELT__TENSOR(dx, FP32, ACCUMULATED, OF(T), OF(WIDTH)))
enum smelt__toy_grad_tensor { TENSORS(SMELT__GRAD_NUMBER, ) };
static const struct smelt__args_table smelt__toy_grad_table = {
    SMELT__ARGS("SMELT_TOY_GRAD_ARGS_INIT", dx, SMELT__SYMBOLS, smelt__toy_grad_scalars,
                SMELT__ROWS()),
};

#include "ops/args_table_end.h"
