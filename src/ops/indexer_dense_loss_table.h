/* The arguments of the operator indexer_dense_loss as a table (args_table.h);
 * smelt/indexer_dense_loss.h has their meaning. */
#pragma once

#include "ops/args_table.h"
#include "ops/dense_lse_table.h"
#include "smelt/indexer_dense_loss.h"

#define OF(name) SMELT__INDEXER_DENSE_LOSS_##name
#define ARGS smelt_indexer_dense_loss_args

#define SYMBOLS(ROW)                                                                               \
    ROW(T, SMELT__BY_ARGS("T", "token", tokens))                                                   \
    ROW(S, SMELT__BY_ARGS("S", "row", rows))                                                       \
    ROW(H, SMELT__BY_KEY("H", "head", "heads"))                                                    \
    ROW(KV, SMELT__BY_KEY("KV", "key head", "kv_heads"))                                           \
    ROW(DQK, SMELT__BY_KEY("dqk", "element", "dqk"))                                               \
    ROW(HI, SMELT__BY_KEY("HI", "indexer head", "index_heads"))                                    \
    ROW(DI, SMELT__BY_KEY("DI", "element", "index_dim"))                                           \
    ROW(ONE, SMELT__ONE_ELEMENT)                                                                   \
    ROW(G, SMELT__BY_KEY("G", "group", "groups"))                                                  \
    ROW(R, SMELT__BY_KEY("R", "key", "granularity"))                                               \
    ROW(N, SMELT__BY_ARGS_PER("N", "pool", rows, OF(R)))

enum smelt__indexer_dense_loss_symbol { SYMBOLS(SMELT__NUMBER) };

static const struct smelt__scalar_row smelt__indexer_dense_loss_scalars[] = {
    {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(rows, INT64, 0, SMELT__DENSE_MOST_ROWS)},
    {SMELT__SCALAR(scale, FLOAT, 0, 0)},
    {SMELT__SCALAR(query_weight, FLOAT, 0, 0)},
    {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},
    {SMELT__SCALAR(reserved, INT, 0, 0)},
    {SMELT__SCALAR(workspace_limit, SIZE, 0, 0)},
    {SMELT__SCALAR(causal_limit, INT64, 0, INT32_MAX)},
};

/* Then the dimensions of `losses`. The kernels keep the step between the indexer's keys in 32 bits. */
#define TENSORS(ROW, type, ...)                                                                    \
    ROW(Q, SMELT__TENSOR(q, BF16, INPUT, OF(T), OF(H), OF(DQK)), .whole_rows = 1)                  \
    ROW(K, SMELT__TENSOR(k, BF16, INPUT, OF(S), OF(KV), OF(DQK)), .whole_rows = 1)                 \
    ROW(LSE, SMELT__TENSOR(lse, FP32, INPUT, OF(T), OF(H), OF(ONE)))                               \
    ROW(INDEX_Q, SMELT__TENSOR(index_q, BF16, INPUT, OF(T), OF(HI), OF(DI)), .whole_rows = 1)      \
    ROW(INDEX_K, SMELT__TENSOR(index_k, BF16, INPUT, OF(N), OF(DI)), .whole_rows = 1,              \
        .most_stride = INT32_MAX)                                                                  \
    ROW(INDEX_WEIGHTS, SMELT__TENSOR(index_weights, type, INPUT, OF(T), OF(HI)))                   \
    ROW(WINDOW_BEGIN, SMELT__TENSOR(window_begin, INT32, INPUT, OF(T)))                            \
    ROW(WINDOW_END, SMELT__TENSOR(window_end, INT32, INPUT, OF(T)))                                \
    ROW(WEIGHT, SMELT__TENSOR(weight, FP32, INPUT, OF(T)), .optional = 1)                          \
    ROW(GRAD_LOSS, SMELT__TENSOR(grad_loss, FP32, INPUT, OF(ONE)), .optional = 1)                  \
    ROW(LOSS, SMELT__TENSOR(loss, FP32, OUTPUT, OF(ONE)))                                          \
    ROW(LOSSES, SMELT__TENSOR(losses, FP32, OUTPUT, __VA_ARGS__), .optional = 1)                   \
    ROW(INDEX_DQ, SMELT__TENSOR(index_dq, BF16, OUTPUT, OF(T), OF(HI), OF(DI)), .whole_rows = 1,   \
        .optional = 1)                                                                             \
    ROW(INDEX_DWEIGHTS, SMELT__TENSOR(index_dweights, type, OUTPUT, OF(T), OF(HI)), .optional = 1) \
    ROW(INDEX_DK, SMELT__TENSOR(index_dk, BF16, OUTPUT, OF(N), OF(DI)), .whole_rows = 1,           \
        .optional = 1)                                                                             \
    ROW(INDEX_DK_FP32, SMELT__TENSOR(index_dk_fp32, FP32, OUTPUT, OF(N), OF(DI)), .whole_rows = 1, \
        .optional = 1)                                                                             \
    ROW(INDEX_DK_SUM, SMELT__TENSOR(index_dk_sum, FP32, ACCUMULATED, OF(N), OF(DI)),               \
        .whole_rows = 1, .optional = 1)

enum smelt__indexer_dense_loss_tensor { TENSORS(SMELT__NUMBER, FP32, OF(T)) };
#define TABLE(...)                                                                                 \
    {                                                                                              \
        SMELT__ARGS("SMELT_INDEXER_DENSE_LOSS_ARGS_INIT", causal_limit, SMELT__SYMBOLS,            \
                    smelt__indexer_dense_loss_scalars, SMELT__ROWS(__VA_ARGS__)),                  \
            SMELT__TABLE_BY({"weights_dtype", 0, 1, NULL}, {"groups", 1, 2, NULL}),                \
            SMELT__WORKSPACE(SMELT__WORKSPACE_ALIGNMENT)                                           \
    }

/* With groups=1 nothing has the dimension G. */
static const struct smelt__args_table smelt__indexer_dense_loss_table[] = {
    TABLE(FP32, OF(T)), TABLE(BF16, OF(T)), TABLE(FP32, OF(T), OF(G)), TABLE(BF16, OF(T), OF(G))};

#include "ops/args_table_end.h"
