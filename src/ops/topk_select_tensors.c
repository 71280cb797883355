/* See topk_select_tensors.h. */
#include "ops/topk_select_tensors.h"

#include "smelt/kernels.h"
#include "smelt/topk_select.h"

#define NUMBER(name) SMELT__TOPK_SELECT_##name
#define MATRIX(tensor, element_, columns, role_, optional_)                                        \
    {                                                                                              \
        .name = #tensor, .field = offsetof(smelt_topk_select_args, tensor), .element = (element_), \
        .role = (role_), .passes = SMELT_PASS_FORWARD, .dimensions = 2,                            \
        .shape = {NUMBER(T), NUMBER(columns)}, .optional = (optional_)                             \
    }
#define LIST(tensor, role_)                                                                        \
    {                                                                                              \
        .name = #tensor, .field = offsetof(smelt_topk_select_args, tensor),                        \
        .element = SMELT__INT32, .role = (role_), .passes = SMELT_PASS_FORWARD, .dimensions = 1,   \
        .shape = {NUMBER(T)}, .optional = 1                                                        \
    }

static const struct smelt__symbol symbols[SMELT__TOPK_SELECT_SYMBOLS] = {
    [NUMBER(T)] = {"T", "token"},
    [NUMBER(S)] = {"S", "row"},
    [NUMBER(K)] = {"topk", "place"},
};

static const struct smelt__tensor_row rows[SMELT__TOPK_SELECT_TENSORS] = {
    [NUMBER(LOGITS)] = MATRIX(logits, SMELT__FP32, S, SMELT__INPUT, 0),
    [NUMBER(BEGIN)] = LIST(window_begin, SMELT__INPUT),
    [NUMBER(END)] = LIST(window_end, SMELT__INPUT),
    [NUMBER(OFFSET)] = LIST(offset, SMELT__INPUT),
    [NUMBER(INDICES)] = MATRIX(indices, SMELT__INT32, K, SMELT__OUTPUT, 0),
    [NUMBER(VALUES)] = MATRIX(values, SMELT__FP32, K, SMELT__OUTPUT, 1),
    [NUMBER(LENGTHS)] = LIST(lengths, SMELT__OUTPUT),
};

const struct smelt__tensor_table smelt__topk_select_tensors = {
    .symbols = symbols,
    .symbol_count = SMELT__TOPK_SELECT_SYMBOLS,
    .rows = rows,
    .count = SMELT__TOPK_SELECT_TENSORS,
    .args_bytes = sizeof(smelt_topk_select_args),
};
