/* The arguments of the operator quantize as a table (args_table.h); smelt/quantize.h has
 * their meaning. */
#pragma once

#include "ops/args_table.h"
#include "smelt/quantize.h"

/* Extents by number. */
enum smelt__quantize_symbol {
    SMELT__QUANTIZE_N,
    SMELT__QUANTIZE_D,
    SMELT__QUANTIZE_G,
};

/* Rows by number. */
enum smelt__quantize_tensor {
    SMELT__QUANTIZE_X,
    SMELT__QUANTIZE_Y,
    SMELT__QUANTIZE_DEQUANTIZED,
    SMELT__QUANTIZE_SCALE,
    SMELT__QUANTIZE_FACTOR,
    SMELT__QUANTIZE_TENSORS
};

#define OF(name) SMELT__QUANTIZE_##name
#define ARGS smelt_quantize_args

static const struct smelt__symbol smelt__quantize_symbols[] = {
    [OF(N)] = SMELT__BY_ARGS("N", "row", rows),
    [OF(D)] = SMELT__BY_KEY("D", "element", "dim"),
    [OF(G)] = SMELT__BY_KEY("G", "group", "groups"),
};

static const struct smelt__scalar_row smelt__quantize_scalars[] = {
    {SMELT__SCALAR(rows, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},
    {SMELT__SCALAR(reserved, INT, 0, 0)},
};

static const struct smelt__tensor_row smelt__quantize_tensors[] = {
    [OF(X)] = {SMELT__TENSOR(x, BF16, INPUT, OF(N), OF(D)), .whole_rows = 1},
    [OF(Y)] = {SMELT__TENSOR(y, E4M3, OUTPUT, OF(N), OF(D)), .optional = 1, .whole_rows = 1},
    [OF(DEQUANTIZED)] = {SMELT__TENSOR(dequantized, BF16, OUTPUT, OF(N), OF(D)), .optional = 1,
                         .whole_rows = 1, .may_be_nan = 1},
    [OF(SCALE)] = {SMELT__TENSOR(scale, FP32, OUTPUT, OF(N), OF(G)), .optional = 1},
    [OF(FACTOR)] = {SMELT__TENSOR(factor, FP32, INPUT, OF(N)), .optional = 1},
};

static const struct smelt__args_table smelt__quantize_table = {
    SMELT__ARGS("SMELT_QUANTIZE_ARGS_INIT", factor, smelt__quantize_symbols,
                smelt__quantize_scalars, smelt__quantize_tensors),
    .flattened = "N",
};

#undef ARGS
#undef OF
