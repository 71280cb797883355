/* See toy_table.h. */
#include "ops/toy_table.h"

#include "smelt/toy.h"

enum { T, WIDTH }; /* enum smelt__toy_symbol */

#define SYMBOLS                                                                                    \
    { SMELT__BY_ARGS("T", "token", tokens), SMELT__BY_KEY("width", "element", "width") }
#define SCALARS                                                                                    \
    {                                                                                              \
        {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)}, {                                            \
            SMELT__SCALAR(factor, FLOAT, 0, 0)                                                     \
        }                                                                                          \
    }

#define ARGS smelt_toy_args
static const struct smelt__symbol symbols[] = SYMBOLS;
static const struct smelt__scalar_row scalars[] = SCALARS;
static const struct smelt__tensor_row rows[] = {
    [SMELT__TOY_X] = {SMELT__TENSOR(x, FP32, INPUT, T, WIDTH)},
    [SMELT__TOY_OUT] = {SMELT__TENSOR(out, FP32, OUTPUT, T, WIDTH)},
};
const struct smelt__args_table smelt__toy_table = {
    SMELT__ARGS("SMELT_TOY_ARGS_INIT", out, symbols, scalars, rows),
};

#undef ARGS
#define ARGS smelt_toy_grad_args
static const struct smelt__symbol grad_symbols[] = SYMBOLS;
static const struct smelt__scalar_row grad_scalars[] = SCALARS;
static const struct smelt__tensor_row grad_rows[] = {
    [SMELT__TOY_GRAD] = {SMELT__TENSOR(grad, FP32, INPUT, T, WIDTH)},
    [SMELT__TOY_DX] = {SMELT__TENSOR(dx, FP32, ACCUMULATED, T, WIDTH)},
};
const struct smelt__args_table smelt__toy_grad_table = {
    SMELT__ARGS("SMELT_TOY_GRAD_ARGS_INIT", dx, grad_symbols, grad_scalars, grad_rows),
};
