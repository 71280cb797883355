/* See indexer_loss_tensors.h. */
#include "ops/indexer_loss_tensors.h"

#include "smelt/indexer_loss.h"
#include "smelt/kernels.h"

#define NUMBER(name) SMELT__INDEXER_LOSS_##name
#define FIELD(tensor, element_, role_, optional_)                                                  \
    .name = #tensor, .field = offsetof(smelt_indexer_loss_args, tensor), .element = (element_),    \
    .role = (role_), .passes = SMELT_PASS_FORWARD, .optional = (optional_)
#define MATRIX(tensor, element, role, columns, optional)                                           \
    {                                                                                              \
        FIELD(tensor, element, role, optional), .dimensions = 2, .shape = {                        \
            NUMBER(T),                                                                             \
            NUMBER(columns)                                                                        \
        }                                                                                          \
    }
#define LIST(tensor, role, extent, optional)                                                       \
    {                                                                                              \
        FIELD(tensor, SMELT__FP32, role, optional), .dimensions = 1, .shape = { NUMBER(extent) }   \
    }

static const struct smelt__symbol symbols[SMELT__INDEXER_LOSS_SYMBOLS] = {
    [NUMBER(T)] = {"T", "token"},
    [NUMBER(WIDTH)] = {"width", "slot"},
    [NUMBER(ONE)] = {"1", "number"},
};

static const struct smelt__tensor_row rows[SMELT__INDEXER_LOSS_TENSORS] = {
    [NUMBER(LOGITS)] = MATRIX(logits, SMELT__FP32, SMELT__INPUT, WIDTH, 0),
    [NUMBER(TARGET)] = MATRIX(target, SMELT__FP32, SMELT__INPUT, WIDTH, 0),
    [NUMBER(INDICES)] = MATRIX(indices, SMELT__INT32, SMELT__INPUT, WIDTH, 0),
    [NUMBER(TOPK_LENGTH)] = MATRIX(topk_length, SMELT__INT32, SMELT__INPUT, ONE, 1),
    [NUMBER(WEIGHT)] = LIST(weight, SMELT__INPUT, T, 1),
    [NUMBER(GRAD_LOSS)] = LIST(grad_loss, SMELT__INPUT, ONE, 1),
    [NUMBER(LOSS)] = LIST(loss, SMELT__OUTPUT, ONE, 0),
    [NUMBER(LOSSES)] = LIST(losses, SMELT__OUTPUT, T, 1),
    [NUMBER(GRAD)] = MATRIX(grad, SMELT__FP32, SMELT__OUTPUT, WIDTH, 1),
};

const struct smelt__tensor_table smelt__indexer_loss_tensors = {
    .symbols = symbols,
    .symbol_count = SMELT__INDEXER_LOSS_SYMBOLS,
    .rows = rows,
    .count = SMELT__INDEXER_LOSS_TENSORS,
    .args_bytes = sizeof(smelt_indexer_loss_args),
};
