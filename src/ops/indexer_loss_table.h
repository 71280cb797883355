/* The arguments of the operator indexer_loss as a table (args_table.h); smelt/indexer_loss.h has
 * their meaning. */
#pragma once

#include "ops/args_table.h"
#include "smelt/indexer_loss.h"

/* Extents by number. */
enum smelt__indexer_loss_symbol {
    SMELT__INDEXER_LOSS_T,
    SMELT__INDEXER_LOSS_WIDTH,
    SMELT__INDEXER_LOSS_ONE,
};

/* Rows by number. */
enum smelt__indexer_loss_tensor {
    SMELT__INDEXER_LOSS_LOGITS,
    SMELT__INDEXER_LOSS_TARGET,
    SMELT__INDEXER_LOSS_INDICES,
    SMELT__INDEXER_LOSS_TOPK_LENGTH,
    SMELT__INDEXER_LOSS_WEIGHT,
    SMELT__INDEXER_LOSS_GRAD_LOSS,
    SMELT__INDEXER_LOSS_LOSS,
    SMELT__INDEXER_LOSS_LOSSES,
    SMELT__INDEXER_LOSS_GRAD,
    SMELT__INDEXER_LOSS_TENSORS
};

#define OF(name) SMELT__INDEXER_LOSS_##name
#define ARGS smelt_indexer_loss_args

static const struct smelt__symbol smelt__indexer_loss_symbols[] = {
    [OF(T)] = SMELT__BY_ARGS("T", "token", tokens),
    [OF(WIDTH)] = SMELT__BY_ARGS("width", "slot", width),
    [OF(ONE)] = SMELT__ONE_ELEMENT,
};

static const struct smelt__scalar_row smelt__indexer_loss_scalars[] = {
    {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(rows, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(width, INT64, 1, INT32_MAX), .most_key = "topk"},
    {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},
    {SMELT__SCALAR(query_weight, FLOAT, 0, 0)},
};

static const struct smelt__tensor_row smelt__indexer_loss_tensors[] = {
    [OF(LOGITS)] = {SMELT__TENSOR(logits, FP32, INPUT, OF(T), OF(WIDTH))},
    [OF(TARGET)] = {SMELT__TENSOR(target, FP32, INPUT, OF(T), OF(WIDTH))},
    [OF(INDICES)] = {SMELT__TENSOR(indices, INT32, INPUT, OF(T), OF(WIDTH))},
    [OF(TOPK_LENGTH)] = {SMELT__TENSOR(topk_length, INT32, INPUT, OF(T), OF(ONE)), .optional = 1},
    [OF(WEIGHT)] = {SMELT__TENSOR(weight, FP32, INPUT, OF(T)), .optional = 1},
    [OF(GRAD_LOSS)] = {SMELT__TENSOR(grad_loss, FP32, INPUT, OF(ONE)), .optional = 1},
    [OF(LOSS)] = {SMELT__TENSOR(loss, FP32, OUTPUT, OF(ONE))},
    [OF(LOSSES)] = {SMELT__TENSOR(losses, FP32, OUTPUT, OF(T)), .optional = 1},
    [OF(GRAD)] = {SMELT__TENSOR(grad, FP32, OUTPUT, OF(T), OF(WIDTH)), .optional = 1},
};

static const struct smelt__args_table smelt__indexer_loss_table = {
    SMELT__ARGS("SMELT_INDEXER_LOSS_ARGS_INIT", workspace_bytes, smelt__indexer_loss_symbols,
                smelt__indexer_loss_scalars, smelt__indexer_loss_tensors),
    SMELT__WORKSPACE(SMELT__WORKSPACE_ALIGNMENT), .flattened = "T", /* queries, or their lists */
};

#undef ARGS
#undef OF
