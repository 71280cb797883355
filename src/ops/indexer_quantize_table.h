/* The arguments of the operator indexer_quantize as a table (args_table.h); smelt/indexer_quantize.h has
 * their meaning. */
#pragma once

#include "ops/args_table.h"
#include "smelt/indexer_quantize.h"

/* Extents by number. */
enum smelt__indexer_quantize_symbol {
    SMELT__INDEXER_QUANTIZE_N,
    SMELT__INDEXER_QUANTIZE_D,
};

/* Rows by number. */
enum smelt__indexer_quantize_tensor {
    SMELT__INDEXER_QUANTIZE_X,
    SMELT__INDEXER_QUANTIZE_Y,
    SMELT__INDEXER_QUANTIZE_SCALE,
    SMELT__INDEXER_QUANTIZE_FACTOR,
    SMELT__INDEXER_QUANTIZE_TENSORS
};

#define OF(name) SMELT__INDEXER_QUANTIZE_##name
#define ARGS smelt_indexer_quantize_args

static const struct smelt__symbol smelt__indexer_quantize_symbols[] = {
    [OF(N)] = SMELT__BY_ARGS("N", "row", rows),
    [OF(D)] = SMELT__BY_KEY("D", "element", "dim"),
};

static const struct smelt__scalar_row smelt__indexer_quantize_scalars[] = {
    {SMELT__SCALAR(rows, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},
    {SMELT__SCALAR(reserved, INT, 0, 0)},
};

static const struct smelt__tensor_row smelt__indexer_quantize_tensors[] = {
    [OF(X)] = {SMELT__TENSOR(x, BF16, INPUT, OF(N), OF(D)), .whole_rows = 1},
    [OF(Y)] = {SMELT__TENSOR(y, E4M3, OUTPUT, OF(N), OF(D)), .whole_rows = 1},
    [OF(SCALE)] = {SMELT__TENSOR(scale, FP32, OUTPUT, OF(N))},
    [OF(FACTOR)] = {SMELT__TENSOR(factor, FP32, INPUT, OF(N)), .optional = 1},
};

static const struct smelt__args_table smelt__indexer_quantize_table = {
    SMELT__ARGS("SMELT_INDEXER_QUANTIZE_ARGS_INIT", factor, smelt__indexer_quantize_symbols,
                smelt__indexer_quantize_scalars, smelt__indexer_quantize_tensors),
    .flattened = "N",
};

#undef ARGS
#undef OF
