/* See indexer_scores_table.h. */
#include "ops/indexer_scores_table.h"

#include "smelt/indexer_scores.h"

#define ARGS smelt_indexer_scores_args
#define NUMBER(name) SMELT__INDEXER_SCORES_##name

enum { T, S, H, D, WIDTH, ONE }; /* enum smelt__indexer_scores_symbol */

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
    [NUMBER(LOGITS)] = {SMELT__TENSOR(logits, FP32, OUTPUT, T, WIDTH)},
};

const struct smelt__args_table smelt__indexer_scores_table = {
    SMELT__ARGS("SMELT_INDEXER_SCORES_ARGS_INIT", logits, symbols, scalars, rows),
};
