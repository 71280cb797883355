/* The tensors of the tests' toy operator. */
#ifndef SMELT_OPS_TOY_TENSORS_H
#define SMELT_OPS_TOY_TENSORS_H

#include "ops/tensors.h"

enum smelt__toy_symbol { SMELT__TOY_T, SMELT__TOY_WIDTH, SMELT__TOY_SYMBOLS };
enum smelt__toy_tensor {
    SMELT__TOY_X,
    SMELT__TOY_OUT,
    SMELT__TOY_GRAD,
    SMELT__TOY_DX,
    SMELT__TOY_TENSORS
};

extern const struct smelt__tensor_table smelt__toy_tensors;

#endif
