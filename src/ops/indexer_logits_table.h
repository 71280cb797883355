/* The arguments of the operator indexer_logits as tables (args_table.h); smelt/indexer_logits.h has
 * their meaning. */
#pragma once

#include "ops/args_table.h"
#include "smelt/indexer_logits.h"

#define OF(name) SMELT__INDEXER_LOGITS_##name
#define ARGS smelt_indexer_logits_args

/* `...`: of N, the logits of a query and group. */
#define SYMBOLS(ROW, ...)                                                                          \
    ROW(T, SMELT__BY_ARGS("T", "token", tokens))                                                   \
    ROW(S, SMELT__BY_ARGS("S", "row", rows))                                                       \
    ROW(H, SMELT__BY_KEY("H", "head", "heads"))                                                    \
    ROW(D, SMELT__BY_KEY("D", "element", "dim"))                                                   \
    ROW(G, SMELT__BY_KEY("G", "group", "groups"))                                                  \
    ROW(R, SMELT__BY_KEY("R", "key", "block_max"))                                                 \
    ROW(C, SMELT__BY_ARGS("C", "candidate", candidate_count))                                      \
    ROW(CB, SMELT__BY_KEY("CB", "key", "candidate_block"))                                         \
    ROW(N, __VA_ARGS__)

enum smelt__indexer_logits_symbol { SYMBOLS(SMELT__NUMBER, ) OF(SYMBOLS) };
static const struct smelt__symbol smelt__indexer_logits_symbols[] = {SYMBOLS(
    SMELT__ROW, SMELT__BY_ARGS_PER("N", "logit", rows, OF(R)))},
                                  smelt__indexer_logits_listed_symbols[] = {SYMBOLS(
                                      SMELT__ROW,
                                      SMELT__BY_ARGS_TIMES("N", "logit", candidate_count, OF(CB)),
                                      .per = OF(R))};

static const struct smelt__scalar_row smelt__indexer_logits_scalars[] = {
    {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(rows, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(candidate_count, INT64, 0, INT32_MAX), .most_key = "candidate_block",
     .unless = "candidate_block"},
    {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},
    {SMELT__SCALAR(scale, FLOAT, 0, 0), .zero = 1},
};

/* The kernels that gather listed keys keep the step between keys in 32 bits. */
#define TENSORS(ROW, quantized, type, most, ...)                                                   \
    ROW(Q, SMELT__TENSOR(q, quantized, INPUT, OF(T), OF(H), OF(D)), .whole_rows = 1)               \
    ROW(K, SMELT__TENSOR(k, quantized, INPUT, OF(S), OF(D)), .whole_rows = 1,                      \
        .most_stride = (most))                                                                     \
    ROW(WEIGHTS, SMELT__TENSOR(weights, type, INPUT, OF(T), OF(H)), .key = "weights")              \
    ROW(K_SCALE, SMELT__TENSOR(k_scale, FP32, INPUT, OF(S)), .key = "dtype")                       \
    ROW(WINDOW_BEGIN, SMELT__TENSOR(window_begin, INT32, INPUT, OF(T)))                            \
    ROW(WINDOW_END, SMELT__TENSOR(window_end, INT32, INPUT, OF(T)))                                \
    ROW(LOGITS, SMELT__TENSOR(logits, FP32, OUTPUT, __VA_ARGS__))                                  \
    ROW(CANDIDATES, SMELT__TENSOR(candidates, INT32, INPUT, OF(T), OF(C)), .key = "candidate_block")

enum smelt__indexer_logits_tensor { TENSORS(SMELT__NUMBER, BF16, FP32, 0, OF(T)) };

/* With groups=1 the logits have no dimension G; with block_max=1 they have S in place of N. */
#define TABLE(symbols, ...)                                                                        \
    {                                                                                              \
        SMELT__ARGS("SMELT_INDEXER_LOGITS_ARGS_INIT", candidates, smelt__indexer_logits_##symbols, \
                    smelt__indexer_logits_scalars, SMELT__ROWS(__VA_ARGS__)),                      \
            SMELT__TABLE_BY({"weights_dtype", 0, 12, NULL}, {"dtype", 0, 6, NULL},                 \
                            {"candidate_block", 0, 4, NULL},                                       \
                            {"block_max", 1, 2, .unless = "candidate_block"},                      \
                            {"groups", 1, 1, NULL})                                                \
    }

#define TABLES(q, weights)                                                                         \
    TABLE(symbols, q, weights, 0, OF(T), OF(S)),                                                   \
        TABLE(symbols, q, weights, 0, OF(T), OF(G), OF(S)),                                        \
        TABLE(symbols, q, weights, 0, OF(T), OF(N)),                                               \
        TABLE(symbols, q, weights, 0, OF(T), OF(G), OF(N)),                                        \
        TABLE(listed_symbols, q, weights, INT32_MAX, OF(T), OF(N)),                                \
        TABLE(listed_symbols, q, weights, INT32_MAX, OF(T), OF(G), OF(N))

static const struct smelt__args_table smelt__indexer_logits_table[] = {
    TABLES(BF16, FP32), TABLES(E4M3, FP32), TABLES(BF16, BF16), TABLES(E4M3, BF16)};

#include "ops/args_table_end.h"
