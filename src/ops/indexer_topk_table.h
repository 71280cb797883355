/* The arguments of the operator indexer_topk as tables (args_table.h); smelt/indexer_topk.h has
 * their meaning. */
#pragma once

#include "ops/args_table.h"
#include "smelt/indexer_topk.h"

#define OF(name) SMELT__INDEXER_TOPK_##name
#define ARGS smelt_indexer_topk_args

enum { SMELT__INDEXER_TOPK_MOST_ROWS = 1 << 20 };

#define SYMBOLS(ROW)                                                                               \
    ROW(T, SMELT__BY_ARGS("T", "token", tokens))                                                   \
    ROW(S, SMELT__BY_ARGS("S", "row", rows))                                                       \
    ROW(H, SMELT__BY_KEY("H", "head", "heads"))                                                    \
    ROW(D, SMELT__BY_KEY("D", "element", "dim"))                                                   \
    ROW(K, SMELT__BY_KEY("topk", "slot", "topk"))                                                  \
    ROW(G, SMELT__BY_KEY("G", "group", "groups"))                                                  \
    ROW(WIDTH, SMELT__BY_ARGS("width", "slot", width))                                             \
    ROW(P, SMELT__BY_KEY("publish", "slot", "publish"))                                            \
    ROW(C, SMELT__BY_ARGS("C", "candidate", candidate_count))

enum smelt__indexer_topk_symbol { SYMBOLS(SMELT__NUMBER) };

static const struct smelt__scalar_row smelt__indexer_topk_scalars[] = {
    {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(rows, INT64, 0, SMELT__INDEXER_TOPK_MOST_ROWS)},
    {SMELT__SCALAR(width, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(candidate_count, INT64, 0, INT32_MAX), .most_key = "candidate_block",
     .unless = "candidate_block"},
    {SMELT__SCALAR(index_offset, INT, INT32_MIN, INT32_MAX)},
    {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},
    {SMELT__SCALAR(scale, FLOAT, 0, 0), .zero = 1},
    {SMELT__SCALAR(reserved, INT, 0, 0)},
    {SMELT__SCALAR(causal_limit, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(workspace_limit, SIZE, 0, 0)},
};

/* `slots`: a list's width; then the dimensions that an output's rows have. */
#define TENSORS(ROW, quantized, type, slots, ...)                                                  \
    ROW(QUERY, SMELT__TENSOR(q, quantized, INPUT, OF(T), OF(H), OF(D)), .whole_rows = 1)           \
    ROW(KEY, SMELT__TENSOR(k, quantized, INPUT, OF(S), OF(D)), .whole_rows = 1)                    \
    ROW(WEIGHTS, SMELT__TENSOR(weights, type, INPUT, OF(T), OF(H)), .key = "weights")              \
    ROW(KEY_SCALE, SMELT__TENSOR(k_scale, FP32, INPUT, OF(S)), .key = "dtype")                     \
    ROW(WINDOW_BEGIN, SMELT__TENSOR(window_begin, INT32, INPUT, OF(T)))                            \
    ROW(WINDOW_END, SMELT__TENSOR(window_end, INT32, INPUT, OF(T)))                                \
    ROW(OFFSET, SMELT__TENSOR(offset, INT32, INPUT, OF(T)), .optional = 1)                         \
    ROW(LIMIT, SMELT__TENSOR(limit, INT32, INPUT, OF(T)), .optional = 1)                           \
    ROW(CANDIDATES, SMELT__TENSOR(candidates, INT32, INPUT, OF(T), OF(C)),                         \
        .key = "candidate_block")                                                                  \
    ROW(INDICES, SMELT__TENSOR(indices, INT32, OUTPUT, __VA_ARGS__, slots))                        \
    ROW(VALUES, SMELT__TENSOR(values, FP32, OUTPUT, __VA_ARGS__, OF(K)), .optional = 1)            \
    ROW(LENGTHS, SMELT__TENSOR(lengths, INT32, OUTPUT, __VA_ARGS__), .optional = 1)                \
    ROW(PUBLISHED, SMELT__TENSOR(published, INT32, OUTPUT, __VA_ARGS__, OF(P)), .key = "publish")

enum smelt__indexer_topk_tensor { TENSORS(SMELT__NUMBER, BF16, FP32, OF(T), OF(T)) };

/* With groups=1 outputs do not have the dimension G; with expand=1 lists have topk slots. */
#define TABLE(...)                                                                                 \
    {                                                                                              \
        SMELT__ARGS("SMELT_INDEXER_TOPK_ARGS_INIT", causal_limit, SMELT__SYMBOLS,                  \
                    smelt__indexer_topk_scalars, SMELT__ROWS(__VA_ARGS__)),                        \
            SMELT__TABLE_BY({"weights_dtype", 0, 8, NULL}, {"dtype", 0, 4, NULL},                  \
                            {"expand", 1, 2, NULL}, {"groups", 1, 1, NULL}),                       \
            SMELT__WORKSPACE(SMELT__WORKSPACE_ALIGNMENT)                                           \
    }

#define TABLES(q, weights)                                                                         \
    TABLE(q, weights, OF(K), OF(T)), TABLE(q, weights, OF(K), OF(T), OF(G)),                       \
        TABLE(q, weights, OF(WIDTH), OF(T)), TABLE(q, weights, OF(WIDTH), OF(T), OF(G))

static const struct smelt__args_table smelt__indexer_topk_table[] = {
    TABLES(BF16, FP32), TABLES(E4M3, FP32), TABLES(BF16, BF16), TABLES(E4M3, BF16)};

#include "ops/args_table_end.h"
