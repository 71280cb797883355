/* The arguments of the operator topk_select as tables (args_table.h); smelt/topk_select.h has
 * their meaning. */
#pragma once

#include "ops/args_table.h"
#include "smelt/topk_select.h"

enum { SMELT__TOPK_MOST_COLUMNS = 1 << 30 /* of a matrix */ };

#define OF(name) SMELT__TOPK_SELECT_##name
#define ARGS smelt_topk_select_args

#define SYMBOLS(ROW)                                                                               \
    ROW(T, SMELT__BY_ARGS("T", "token", tokens))                                                   \
    ROW(S, SMELT__BY_ARGS("S", "row", rows))                                                       \
    ROW(K, SMELT__BY_KEY("topk", "slot", "topk"))                                                  \
    ROW(G, SMELT__BY_KEY("G", "group", "groups"))                                                  \
    ROW(WIDTH, SMELT__BY_ARGS("width", "slot", width))

enum smelt__topk_select_symbol { SYMBOLS(SMELT__NUMBER) };

static const struct smelt__scalar_row smelt__topk_select_scalars[] = {
    {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(rows, INT64, 0, SMELT__TOPK_MOST_COLUMNS)},
    {SMELT__SCALAR(width, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(index_offset, INT, INT32_MIN, INT32_MAX)},
    {SMELT__SCALAR(reserved, INT, 0, 0)},
};

/* `slots`: a list's width; then the dimensions that an output's rows have. */
#define TENSORS(ROW, type, slots, ...)                                                             \
    ROW(LOGITS, SMELT__TENSOR(logits, type, INPUT, __VA_ARGS__, OF(S)))                            \
    ROW(BEGIN, SMELT__TENSOR(window_begin, INT32, INPUT, OF(T)), .optional = 1)                    \
    ROW(END, SMELT__TENSOR(window_end, INT32, INPUT, OF(T)), .optional = 1)                        \
    ROW(OFFSET, SMELT__TENSOR(offset, INT32, INPUT, OF(T)), .optional = 1)                         \
    ROW(LIMIT, SMELT__TENSOR(limit, INT32, INPUT, OF(T)), .optional = 1)                           \
    ROW(INDICES, SMELT__TENSOR(indices, INT32, OUTPUT, __VA_ARGS__, slots))                        \
    ROW(VALUES, SMELT__TENSOR(values, FP32, OUTPUT, __VA_ARGS__, OF(K)), .optional = 1)            \
    ROW(LENGTHS, SMELT__TENSOR(lengths, INT32, OUTPUT, __VA_ARGS__), .optional = 1)

enum smelt__topk_select_tensor { TENSORS(SMELT__NUMBER, FP32, OF(T), OF(T)) };

/* With groups=1 nothing has the dimension G; with expand=1 lists have topk slots. */
#define TABLE(...)                                                                                 \
    {                                                                                              \
        SMELT__ARGS("SMELT_TOPK_SELECT_ARGS_INIT", workspace_bytes, SMELT__SYMBOLS,                \
                    smelt__topk_select_scalars, SMELT__ROWS(__VA_ARGS__)),                         \
            SMELT__TABLE_BY({"dtype", 0, 1, NULL}, {"groups", 1, 2, NULL},                         \
                            {"expand", 1, 4, NULL}),                                               \
            SMELT__WORKSPACE(SMELT__WORKSPACE_ALIGNMENT)                                           \
    }

static const struct smelt__args_table smelt__topk_select_table[] = {
    TABLE(FP32, OF(K), OF(T)),
    TABLE(BF16, OF(K), OF(T)),
    TABLE(FP32, OF(K), OF(T), OF(G)),
    TABLE(BF16, OF(K), OF(T), OF(G)),
    TABLE(FP32, OF(WIDTH), OF(T)),
    TABLE(BF16, OF(WIDTH), OF(T)),
    TABLE(FP32, OF(WIDTH), OF(T), OF(G)),
    TABLE(BF16, OF(WIDTH), OF(T), OF(G)),
};

#include "ops/args_table_end.h"
