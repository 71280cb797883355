/* See indexer_quantize_table.h. */
#include "ops/indexer_quantize_table.h"

#include "smelt/indexer_quantize.h"

#define ARGS smelt_indexer_quantize_args
#define NUMBER(name) SMELT__INDEXER_QUANTIZE_##name

enum { N, D }; /* enum smelt__indexer_quantize_symbol */

static const struct smelt__symbol symbols[] = {
    [N] = SMELT__BY_ARGS("N", "row", rows),
    [D] = SMELT__BY_KEY("D", "element", "dim"),
};

static const struct smelt__scalar_row scalars[] = {
    {SMELT__SCALAR(rows, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},
    {SMELT__SCALAR(reserved, INT, 0, 0)},
};

static const struct smelt__tensor_row rows[] = {
    [NUMBER(X)] = {SMELT__TENSOR(x, BF16, INPUT, N, D), .whole_rows = 1},
    [NUMBER(Y)] = {SMELT__TENSOR(y, E4M3, OUTPUT, N, D), .whole_rows = 1},
    [NUMBER(SCALE)] = {SMELT__TENSOR(scale, FP32, OUTPUT, N)},
    [NUMBER(FACTOR)] = {SMELT__TENSOR(factor, FP32, INPUT, N), .optional = 1},
};

const struct smelt__args_table smelt__indexer_quantize_table = {
    SMELT__ARGS("SMELT_INDEXER_QUANTIZE_ARGS_INIT", factor, symbols, scalars, rows),
};
