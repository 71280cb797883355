/* See indexer_bwd_table.h. */
#include "ops/indexer_bwd_table.h"

#include "ops/key_grads.h"
#include "smelt/indexer_bwd.h"

#define ARGS smelt_indexer_bwd_args
#define NUMBER(name) SMELT__INDEXER_BWD_##name

enum { T, S, H, D, WIDTH, ONE }; /* enum smelt__indexer_bwd_symbol */

static const struct smelt__symbol symbols[] = {
    [T] = SMELT__BY_ARGS("T", "token", tokens),       [S] = SMELT__BY_ARGS("S", "row", rows),
    [H] = SMELT__BY_KEY("H", "head", "heads"),        [D] = SMELT__BY_KEY("D", "element", "dim"),
    [WIDTH] = SMELT__BY_ARGS("width", "slot", width), [ONE] = SMELT__ONE_ELEMENT,
};

static const struct smelt__scalar_row scalars[] = {
    {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(rows, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(width, INT64, 1, INT32_MAX), .most_key = "topk"},
    {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},
    {SMELT__SCALAR(reserved, INT, 0, 0)},
};

static const struct smelt__tensor_row rows[] = {
    [NUMBER(Q)] = {SMELT__TENSOR(q, BF16, INPUT, T, H, D), .whole_rows = 1},
    /* The kernels keep the step between keys in 32 bits. */
    [NUMBER(K)] = {SMELT__TENSOR(k, BF16, INPUT, S, D), .whole_rows = 1, .most_stride = INT32_MAX},
    [NUMBER(WEIGHTS)] = {SMELT__TENSOR(weights, FP32, INPUT, T, H)},
    [NUMBER(INDICES)] = {SMELT__TENSOR(indices, INT32, INPUT, T, WIDTH)},
    [NUMBER(TOPK_LENGTH)] = {SMELT__TENSOR(topk_length, INT32, INPUT, T, ONE), .optional = 1},
    [NUMBER(GRAD)] = {SMELT__TENSOR(grad, FP32, INPUT, T, WIDTH)},
    [NUMBER(DQ)] = {SMELT__TENSOR(dq, BF16, OUTPUT, T, H, D), .whole_rows = 1},
    [NUMBER(DWEIGHTS)] = {SMELT__TENSOR(dweights, FP32, OUTPUT, T, H)},
    [NUMBER(DK)] = {SMELT__TENSOR(dk, BF16, OUTPUT, S, D), .whole_rows = 1, .one_of = 1},
    [NUMBER(DK_FP32)] = {SMELT__TENSOR(dk_fp32, FP32, OUTPUT, S, D), .whole_rows = 1, .one_of = 1},
    [NUMBER(DK_SUM)] = {SMELT__TENSOR(dk_sum, FP32, ACCUMULATED, S, D), .whole_rows = 1,
                        .one_of = 1},
};

const struct smelt__args_table smelt__indexer_bwd_table = {
    SMELT__ARGS("SMELT_INDEXER_BWD_ARGS_INIT", reserved, symbols, scalars, rows),
    SMELT__WORKSPACE(SMELT__BACKWARD_ALIGNMENT),
};
