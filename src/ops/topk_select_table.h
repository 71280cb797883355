/* The arguments of the operator topk_select as a table (args_table.h); smelt/topk_select.h has
 * their meaning. */
#pragma once

#include "ops/args_table.h"
#include "smelt/topk_select.h"

enum { SMELT__TOPK_MOST_COLUMNS = 1 << 30 /* of a matrix */ };

/* Extents by number. */
enum smelt__topk_select_symbol {
    SMELT__TOPK_SELECT_T,
    SMELT__TOPK_SELECT_S,
    SMELT__TOPK_SELECT_K, /* topk */
};

/* Rows by number. */
enum smelt__topk_select_tensor {
    SMELT__TOPK_SELECT_LOGITS,
    SMELT__TOPK_SELECT_BEGIN,
    SMELT__TOPK_SELECT_END,
    SMELT__TOPK_SELECT_OFFSET,
    SMELT__TOPK_SELECT_INDICES,
    SMELT__TOPK_SELECT_VALUES,
    SMELT__TOPK_SELECT_LENGTHS,
    SMELT__TOPK_SELECT_TENSORS
};

#define OF(name) SMELT__TOPK_SELECT_##name
#define ARGS smelt_topk_select_args

static const struct smelt__symbol smelt__topk_select_symbols[] = {
    [OF(T)] = SMELT__BY_ARGS("T", "token", tokens),
    [OF(S)] = SMELT__BY_ARGS("S", "row", rows),
    [OF(K)] = SMELT__BY_KEY("topk", "slot", "topk"),
};

static const struct smelt__scalar_row smelt__topk_select_scalars[] = {
    {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(rows, INT64, 0, SMELT__TOPK_MOST_COLUMNS)},
    {SMELT__SCALAR(index_offset, INT, INT32_MIN, INT32_MAX)},
    {SMELT__SCALAR(reserved, INT, 0, 0)},
};

static const struct smelt__tensor_row smelt__topk_select_tensors[] = {
    [OF(LOGITS)] = {SMELT__TENSOR(logits, FP32, INPUT, OF(T), OF(S))},
    [OF(BEGIN)] = {SMELT__TENSOR(window_begin, INT32, INPUT, OF(T)), .optional = 1},
    [OF(END)] = {SMELT__TENSOR(window_end, INT32, INPUT, OF(T)), .optional = 1},
    [OF(OFFSET)] = {SMELT__TENSOR(offset, INT32, INPUT, OF(T)), .optional = 1},
    [OF(INDICES)] = {SMELT__TENSOR(indices, INT32, OUTPUT, OF(T), OF(K))},
    [OF(VALUES)] = {SMELT__TENSOR(values, FP32, OUTPUT, OF(T), OF(K)), .optional = 1},
    [OF(LENGTHS)] = {SMELT__TENSOR(lengths, INT32, OUTPUT, OF(T)), .optional = 1},
};

static const struct smelt__args_table smelt__topk_select_table = {
    SMELT__ARGS("SMELT_TOPK_SELECT_ARGS_INIT", workspace_bytes, smelt__topk_select_symbols,
                smelt__topk_select_scalars, smelt__topk_select_tensors),
    SMELT__WORKSPACE(SMELT__WORKSPACE_ALIGNMENT),
};

#undef ARGS
#undef OF
