/* The arguments of the operator indexer_bwd as a table (args_table.h); smelt/indexer_bwd.h has
 * their meaning. */
#pragma once

#include "ops/args_table.h"
#include "smelt/indexer_bwd.h"

#define OF(name) SMELT__INDEXER_BWD_##name
#define ARGS smelt_indexer_bwd_args

#define SYMBOLS(ROW)                                                                               \
    ROW(T, SMELT__BY_ARGS("T", "token", tokens))                                                   \
    ROW(S, SMELT__BY_ARGS("S", "row", rows))                                                       \
    ROW(H, SMELT__BY_KEY("H", "head", "heads"))                                                    \
    ROW(D, SMELT__BY_KEY("D", "element", "dim"))                                                   \
    ROW(WIDTH, SMELT__BY_ARGS("width", "slot", width))                                             \
    ROW(ONE, SMELT__ONE_ELEMENT)                                                                   \
    ROW(R, SMELT__BY_KEY("R", "row", "granularity"))                                               \
    ROW(N, SMELT__BY_ARGS_TIMES("N", "slot", width, OF(R)))

enum smelt__indexer_bwd_symbol { SYMBOLS(SMELT__NUMBER) };

static const struct smelt__scalar_row smelt__indexer_bwd_scalars[] = {
    {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(rows, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(width, INT64, 1, INT32_MAX), .most_key = "topk"},
    {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},
    {SMELT__SCALAR(reserved, INT, 0, 0)},
};

/* The kernels keep the step between keys in 32 bits. */
#define TENSORS(ROW, type, slots)                                                                  \
    ROW(Q, SMELT__TENSOR(q, BF16, INPUT, OF(T), OF(H), OF(D)), .whole_rows = 1)                    \
    ROW(K, SMELT__TENSOR(k, BF16, INPUT, OF(S), OF(D)), .whole_rows = 1, .most_stride = INT32_MAX) \
    ROW(WEIGHTS, SMELT__TENSOR(weights, type, INPUT, OF(T), OF(H)))                                \
    ROW(INDICES, SMELT__TENSOR(indices, INT32, INPUT, OF(T), OF(WIDTH)))                           \
    ROW(TOPK_LENGTH, SMELT__TENSOR(topk_length, INT32, INPUT, OF(T), OF(ONE)), .optional = 1)      \
    ROW(GRAD, SMELT__TENSOR(grad, FP32, INPUT, OF(T), slots))                                      \
    ROW(DQ, SMELT__TENSOR(dq, BF16, OUTPUT, OF(T), OF(H), OF(D)), .whole_rows = 1)                 \
    ROW(DWEIGHTS, SMELT__TENSOR(dweights, type, OUTPUT, OF(T), OF(H)))                             \
    SMELT__KEY_GRADS(ROW, DK, dk, 1, OF(S), OF(D))                                                 \
    ROW(LIMIT, SMELT__TENSOR(limit, INT32, INPUT, OF(T), OF(ONE)), .optional = 1)

enum smelt__indexer_bwd_tensor { TENSORS(SMELT__NUMBER, FP32, OF(T)) };

/* Without and with entries of several rows; then with weights of bf16. */
#define TABLE(...)                                                                                 \
    {                                                                                              \
        SMELT__ARGS("SMELT_INDEXER_BWD_ARGS_INIT", limit, SMELT__SYMBOLS,                          \
                    smelt__indexer_bwd_scalars, SMELT__ROWS(__VA_ARGS__)),                         \
            SMELT__TABLE_BY({"weights_dtype", 0, 2, NULL}, {"granularity", 1, 1, NULL}),           \
            SMELT__WORKSPACE(SMELT__WORKSPACE_ALIGNMENT)                                           \
    }
static const struct smelt__args_table smelt__indexer_bwd_table[] = {
    TABLE(FP32, OF(WIDTH)), TABLE(FP32, OF(N)), TABLE(BF16, OF(WIDTH)), TABLE(BF16, OF(N))};

#include "ops/args_table_end.h"
