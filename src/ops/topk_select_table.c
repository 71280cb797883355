/* See topk_select_table.h. */
#include "ops/topk_select_table.h"

#include "ops/topk_select_rows.h"
#include "smelt/topk_select.h"

#define ARGS smelt_topk_select_args
#define NUMBER(name) SMELT__TOPK_SELECT_##name

enum { T, S, K }; /* enum smelt__topk_select_symbol */

static const struct smelt__symbol symbols[] = {
    [T] = SMELT__BY_ARGS("T", "token", tokens),
    [S] = SMELT__BY_ARGS("S", "row", rows),
    [K] = SMELT__BY_KEY("topk", "slot", "topk"),
};

static const struct smelt__scalar_row scalars[] = {
    {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(rows, INT64, 0, SMELT__TOPK_MOST_COLUMNS)},
    {SMELT__SCALAR(index_offset, INT, INT32_MIN, INT32_MAX)},
    {SMELT__SCALAR(reserved, INT, 0, 0)},
};

static const struct smelt__tensor_row rows[] = {
    [NUMBER(LOGITS)] = {SMELT__TENSOR(logits, FP32, INPUT, T, S)},
    [NUMBER(BEGIN)] = {SMELT__TENSOR(window_begin, INT32, INPUT, T), .optional = 1},
    [NUMBER(END)] = {SMELT__TENSOR(window_end, INT32, INPUT, T), .optional = 1},
    [NUMBER(OFFSET)] = {SMELT__TENSOR(offset, INT32, INPUT, T), .optional = 1},
    [NUMBER(INDICES)] = {SMELT__TENSOR(indices, INT32, OUTPUT, T, K)},
    [NUMBER(VALUES)] = {SMELT__TENSOR(values, FP32, OUTPUT, T, K), .optional = 1},
    [NUMBER(LENGTHS)] = {SMELT__TENSOR(lengths, INT32, OUTPUT, T), .optional = 1},
};

const struct smelt__args_table smelt__topk_select_table = {
    SMELT__ARGS("SMELT_TOPK_SELECT_ARGS_INIT", workspace_bytes, symbols, scalars, rows),
    SMELT__WORKSPACE(SMELT__TOPK_ALIGNMENT),
};
