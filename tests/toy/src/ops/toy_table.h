/* The arguments of the tests' toy operator as tables (args_table.h); smelt/toy.h has their meaning. */
#pragma once

#include "ops/args_table.h"
#include "smelt/toy.h"

enum smelt__toy_symbol { SMELT__TOY_T, SMELT__TOY_WIDTH };
enum smelt__toy_tensor { SMELT__TOY_X, SMELT__TOY_OUT };
enum smelt__toy_grad_tensor { SMELT__TOY_GRAD, SMELT__TOY_DX };

#define OF(name) SMELT__TOY_##name
#define SYMBOLS                                                                                    \
    { SMELT__BY_ARGS("T", "token", tokens), SMELT__BY_KEY("width", "element", "width") }
#define SCALARS                                                                                    \
    {                                                                                              \
        {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)}, {                                            \
            SMELT__SCALAR(factor, FLOAT, 0, 0)                                                     \
        }                                                                                          \
    }

#define ARGS smelt_toy_args
static const struct smelt__symbol smelt__toy_symbols[] = SYMBOLS;
static const struct smelt__scalar_row smelt__toy_scalars[] = SCALARS;
static const struct smelt__tensor_row smelt__toy_tensors[] = {
    [OF(X)] = {SMELT__TENSOR(x, FP32, INPUT, OF(T), OF(WIDTH))},
    [OF(OUT)] = {SMELT__TENSOR(out, FP32, OUTPUT, OF(T), OF(WIDTH))},
};
static const struct smelt__args_table smelt__toy_table = {
    SMELT__ARGS("SMELT_TOY_ARGS_INIT", out, smelt__toy_symbols, smelt__toy_scalars,
                smelt__toy_tensors),
};

#undef ARGS
#define ARGS smelt_toy_grad_args
static const struct smelt__symbol smelt__toy_grad_symbols[] = SYMBOLS;
static const struct smelt__scalar_row smelt__toy_grad_scalars[] = SCALARS;
static const struct smelt__tensor_row smelt__toy_grad_tensors[] = {
    [OF(GRAD)] = {SMELT__TENSOR(grad, FP32, INPUT, OF(T), OF(WIDTH))},
    [OF(DX)] = {SMELT__TENSOR(dx, FP32, ACCUMULATED, OF(T), OF(WIDTH))},
};
static const struct smelt__args_table smelt__toy_grad_table = {
    SMELT__ARGS("SMELT_TOY_GRAD_ARGS_INIT", dx, smelt__toy_grad_symbols, smelt__toy_grad_scalars,
                smelt__toy_grad_tensors),
};

#undef ARGS
#undef OF
#undef SYMBOLS
#undef SCALARS
