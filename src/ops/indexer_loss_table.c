/* See indexer_loss_table.h. */
#include "ops/indexer_loss_table.h"

#include "smelt/indexer_loss.h"

#define ARGS smelt_indexer_loss_args
#define NUMBER(name) SMELT__INDEXER_LOSS_##name

enum { T, WIDTH, ONE }; /* enum smelt__indexer_loss_symbol */

static const struct smelt__symbol symbols[] = {
    [T] = SMELT__BY_ARGS("T", "token", tokens),
    [WIDTH] = SMELT__BY_ARGS("width", "slot", width),
    [ONE] = SMELT__ONE_ELEMENT,
};

static const struct smelt__scalar_row scalars[] = {
    {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(rows, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(width, INT64, 1, INT32_MAX), .most_key = "topk"},
    {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},
    {SMELT__SCALAR(query_weight, FLOAT, 0, 0)},
};

static const struct smelt__tensor_row rows[] = {
    [NUMBER(LOGITS)] = {SMELT__TENSOR(logits, FP32, INPUT, T, WIDTH)},
    [NUMBER(TARGET)] = {SMELT__TENSOR(target, FP32, INPUT, T, WIDTH)},
    [NUMBER(INDICES)] = {SMELT__TENSOR(indices, INT32, INPUT, T, WIDTH)},
    [NUMBER(TOPK_LENGTH)] = {SMELT__TENSOR(topk_length, INT32, INPUT, T, ONE), .optional = 1},
    [NUMBER(WEIGHT)] = {SMELT__TENSOR(weight, FP32, INPUT, T), .optional = 1},
    [NUMBER(GRAD_LOSS)] = {SMELT__TENSOR(grad_loss, FP32, INPUT, ONE), .optional = 1},
    [NUMBER(LOSS)] = {SMELT__TENSOR(loss, FP32, OUTPUT, ONE)},
    [NUMBER(LOSSES)] = {SMELT__TENSOR(losses, FP32, OUTPUT, T), .optional = 1},
    [NUMBER(GRAD)] = {SMELT__TENSOR(grad, FP32, OUTPUT, T, WIDTH), .optional = 1},
};

const struct smelt__args_table smelt__indexer_loss_table = {
    SMELT__ARGS("SMELT_INDEXER_LOSS_ARGS_INIT", workspace_bytes, symbols, scalars, rows),
    SMELT__WORKSPACE(256),
};
