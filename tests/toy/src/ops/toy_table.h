/* The arguments of the tests' toy operator as tables (args_table.h). */
#ifndef SMELT_OPS_TOY_TABLE_H
#define SMELT_OPS_TOY_TABLE_H

#include "ops/args_table.h"

enum smelt__toy_symbol { SMELT__TOY_T, SMELT__TOY_WIDTH };
enum smelt__toy_tensor { SMELT__TOY_X, SMELT__TOY_OUT };
enum smelt__toy_grad_tensor { SMELT__TOY_GRAD, SMELT__TOY_DX };

extern const struct smelt__args_table smelt__toy_table, smelt__toy_grad_table;

#endif
