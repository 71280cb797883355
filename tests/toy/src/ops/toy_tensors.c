/* See toy_tensors.h. */
#include "ops/toy_tensors.h"

#include "smelt/toy.h"

#define ROWS(tensor, role_, passes_)                                                               \
    {                                                                                              \
        .name = #tensor, .field = offsetof(smelt_toy_args, tensor), .element = SMELT__FP32,        \
        .role = (role_), .passes = (passes_), .dimensions = 2, .shape = {                          \
            SMELT__TOY_T,                                                                          \
            SMELT__TOY_WIDTH                                                                       \
        }                                                                                          \
    }

static const struct smelt__symbol symbols[SMELT__TOY_SYMBOLS] = {
    [SMELT__TOY_T] = {"T", "token"}, [SMELT__TOY_WIDTH] = {"width", "element"}};

static const struct smelt__tensor_row rows[SMELT__TOY_TENSORS] = {
    [SMELT__TOY_X] = ROWS(x, SMELT__INPUT, SMELT_PASS_FORWARD),
    [SMELT__TOY_OUT] = ROWS(out, SMELT__OUTPUT, SMELT_PASS_FORWARD),
    [SMELT__TOY_GRAD] = ROWS(grad, SMELT__INPUT, SMELT_PASS_BACKWARD),
    [SMELT__TOY_DX] = ROWS(dx, SMELT__ACCUMULATED, SMELT_PASS_BACKWARD),
};

const struct smelt__tensor_table smelt__toy_tensors = {.symbols = symbols,
                                                       .symbol_count = SMELT__TOY_SYMBOLS,
                                                       .rows = rows,
                                                       .count = SMELT__TOY_TENSORS,
                                                       .args_bytes = sizeof(smelt_toy_args)};
