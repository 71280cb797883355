/* The arguments of the operator indexer_loss as a table (args_table.h); smelt/indexer_loss.h has
 * their meaning. */
#pragma once

#include "ops/args_table.h"
#include "smelt/indexer_loss.h"

#define OF(name) SMELT__INDEXER_LOSS_##name
#define ARGS smelt_indexer_loss_args

#define SYMBOLS(ROW)                                                                               \
    ROW(T, SMELT__BY_ARGS("T", "token", tokens))                                                   \
    ROW(WIDTH, SMELT__BY_ARGS("width", "slot", width))                                             \
    ROW(ONE, SMELT__ONE_ELEMENT)

enum smelt__indexer_loss_symbol { SYMBOLS(SMELT__NUMBER) };

static const struct smelt__scalar_row smelt__indexer_loss_scalars[] = {
    {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(rows, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(width, INT64, 1, INT32_MAX), .most_key = "topk"},
    {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},
    {SMELT__SCALAR(query_weight, FLOAT, 0, 0)},
};

#define TENSORS(ROW, ...)                                                                          \
    ROW(LOGITS, SMELT__TENSOR(logits, FP32, INPUT, OF(T), OF(WIDTH)))                              \
    ROW(TARGET, SMELT__TENSOR(target, FP32, INPUT, OF(T), OF(WIDTH)))                              \
    ROW(INDICES, SMELT__TENSOR(indices, INT32, INPUT, OF(T), OF(WIDTH)))                           \
    ROW(TOPK_LENGTH, SMELT__TENSOR(topk_length, INT32, INPUT, OF(T), OF(ONE)), .optional = 1)      \
    ROW(WEIGHT, SMELT__TENSOR(weight, FP32, INPUT, OF(T)), .optional = 1)                          \
    ROW(GRAD_LOSS, SMELT__TENSOR(grad_loss, FP32, INPUT, OF(ONE)), .optional = 1)                  \
    ROW(LOSS, SMELT__TENSOR(loss, FP32, OUTPUT, OF(ONE)))                                          \
    ROW(LOSSES, SMELT__TENSOR(losses, FP32, OUTPUT, OF(T)), .optional = 1)                         \
    ROW(GRAD, SMELT__TENSOR(grad, FP32, OUTPUT, OF(T), OF(WIDTH)), .optional = 1)

enum smelt__indexer_loss_tensor { TENSORS(SMELT__NUMBER, ) };

static const struct smelt__args_table smelt__indexer_loss_table = {
    SMELT__ARGS("SMELT_INDEXER_LOSS_ARGS_INIT", workspace_bytes, SMELT__SYMBOLS,
                smelt__indexer_loss_scalars, SMELT__ROWS()),
    SMELT__WORKSPACE(SMELT__WORKSPACE_ALIGNMENT), .flattened = "T", /* queries, or their lists */
};

#include "ops/args_table_end.h"
