/* The arguments of the operator topk_select as tables (args_table.h); smelt/topk_select.h has
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
    SMELT__TOPK_SELECT_G,
    SMELT__TOPK_SELECT_WIDTH,
};

/* Rows by number. */
enum smelt__topk_select_tensor {
    SMELT__TOPK_SELECT_LOGITS,
    SMELT__TOPK_SELECT_BEGIN,
    SMELT__TOPK_SELECT_END,
    SMELT__TOPK_SELECT_OFFSET,
    SMELT__TOPK_SELECT_LIMIT,
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
    [OF(G)] = SMELT__BY_KEY("G", "group", "groups"),
    [OF(WIDTH)] = SMELT__BY_ARGS("width", "slot", width),
};

static const struct smelt__scalar_row smelt__topk_select_scalars[] = {
    {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(rows, INT64, 0, SMELT__TOPK_MOST_COLUMNS)},
    {SMELT__SCALAR(width, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(index_offset, INT, INT32_MIN, INT32_MAX)},
    {SMELT__SCALAR(reserved, INT, 0, 0)},
};

/* `slots`: a list's width; then the dimensions that an output's rows have. */
#define ROWS(type, slots, ...)                                                                     \
    [OF(LOGITS)] = {SMELT__TENSOR(logits, type, INPUT, __VA_ARGS__, OF(S))},                       \
    [OF(BEGIN)] = {SMELT__TENSOR(window_begin, INT32, INPUT, OF(T)), .optional = 1},               \
    [OF(END)] = {SMELT__TENSOR(window_end, INT32, INPUT, OF(T)), .optional = 1},                   \
    [OF(OFFSET)] = {SMELT__TENSOR(offset, INT32, INPUT, OF(T)), .optional = 1},                    \
    [OF(LIMIT)] = {SMELT__TENSOR(limit, INT32, INPUT, OF(T)), .optional = 1},                      \
    [OF(INDICES)] = {SMELT__TENSOR(indices, INT32, OUTPUT, __VA_ARGS__, slots)},                   \
    [OF(VALUES)] = {SMELT__TENSOR(values, FP32, OUTPUT, __VA_ARGS__, OF(K)), .optional = 1},       \
    [OF(LENGTHS)] = {SMELT__TENSOR(lengths, INT32, OUTPUT, __VA_ARGS__), .optional = 1},

/* With groups=1 nothing has the dimension G; with expand=1 lists have topk slots. */
static const struct smelt__tensor_row
    smelt__topk_select_fp32[] = {ROWS(FP32, OF(K), OF(T))},
    smelt__topk_select_bf16[] = {ROWS(BF16, OF(K), OF(T))},
    smelt__topk_select_groups_fp32[] = {ROWS(FP32, OF(K), OF(T), OF(G))},
    smelt__topk_select_groups_bf16[] = {ROWS(BF16, OF(K), OF(T), OF(G))},
    smelt__topk_select_rows_fp32[] = {ROWS(FP32, OF(WIDTH), OF(T))},
    smelt__topk_select_rows_bf16[] = {ROWS(BF16, OF(WIDTH), OF(T))},
    smelt__topk_select_group_rows_fp32[] = {ROWS(FP32, OF(WIDTH), OF(T), OF(G))},
    smelt__topk_select_group_rows_bf16[] = {ROWS(BF16, OF(WIDTH), OF(T), OF(G))};

#define TABLE(rows)                                                                                \
    {                                                                                              \
        SMELT__ARGS("SMELT_TOPK_SELECT_ARGS_INIT", workspace_bytes, smelt__topk_select_symbols,    \
                    smelt__topk_select_scalars, rows),                                             \
            SMELT__WORKSPACE(SMELT__WORKSPACE_ALIGNMENT)                                           \
    }

static const struct smelt__args_table smelt__topk_select_table[] = {
    TABLE(smelt__topk_select_fp32),
    TABLE(smelt__topk_select_bf16),
    TABLE(smelt__topk_select_groups_fp32),
    TABLE(smelt__topk_select_groups_bf16),
    TABLE(smelt__topk_select_rows_fp32),
    TABLE(smelt__topk_select_rows_bf16),
    TABLE(smelt__topk_select_group_rows_fp32),
    TABLE(smelt__topk_select_group_rows_bf16),
};

/* The number of a spec's table. */
static inline int smelt__topk_select_table_number(int bf16, int groups, int expand) {
    return (bf16 ? 1 : 0) + (groups > 1 ? 2 : 0) + (expand > 1 ? 4 : 0);
}

#undef TABLE
#undef ROWS
#undef ARGS
#undef OF
