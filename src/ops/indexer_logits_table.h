/* The arguments of the operator indexer_logits as tables (args_table.h); smelt/indexer_logits.h has
 * their meaning. */
#pragma once

#include "ops/args_table.h"
#include "smelt/indexer_logits.h"

/* Extents by number. */
enum smelt__indexer_logits_symbol {
    SMELT__INDEXER_LOGITS_T,
    SMELT__INDEXER_LOGITS_S,
    SMELT__INDEXER_LOGITS_H,
    SMELT__INDEXER_LOGITS_D,
    SMELT__INDEXER_LOGITS_G,
    SMELT__INDEXER_LOGITS_R, /* keys of a logit */
    SMELT__INDEXER_LOGITS_C,
    SMELT__INDEXER_LOGITS_CB, /* keys of a candidate */
    SMELT__INDEXER_LOGITS_N,  /* logits of a query and group */
    SMELT__INDEXER_LOGITS_SYMBOLS
};

/* Rows by number. */
enum smelt__indexer_logits_tensor {
    SMELT__INDEXER_LOGITS_Q,
    SMELT__INDEXER_LOGITS_K,
    SMELT__INDEXER_LOGITS_WEIGHTS, /* optional: there with weights=1 */
    SMELT__INDEXER_LOGITS_K_SCALE, /* optional: there with fp8 */
    SMELT__INDEXER_LOGITS_WINDOW_BEGIN,
    SMELT__INDEXER_LOGITS_WINDOW_END,
    SMELT__INDEXER_LOGITS_LOGITS,
    SMELT__INDEXER_LOGITS_CANDIDATES, /* optional: there with candidate_block */
    SMELT__INDEXER_LOGITS_TENSORS
};

#define OF(name) SMELT__INDEXER_LOGITS_##name
#define ARGS smelt_indexer_logits_args

#define SYMBOLS(logits)                                                                            \
    {                                                                                              \
        [OF(T)] = SMELT__BY_ARGS("T", "token", tokens),                                            \
        [OF(S)] = SMELT__BY_ARGS("S", "row", rows), [OF(H)] = SMELT__BY_KEY("H", "head", "heads"), \
        [OF(D)] = SMELT__BY_KEY("D", "element", "dim"),                                            \
        [OF(G)] = SMELT__BY_KEY("G", "group", "groups"),                                           \
        [OF(R)] = SMELT__BY_KEY("R", "key", "block_max"),                                          \
        [OF(C)] = SMELT__BY_ARGS("C", "candidate", candidate_count),                               \
        [OF(CB)] = SMELT__BY_KEY("CB", "key", "candidate_block"), [OF(N)] = logits,                \
    }
static const struct smelt__symbol smelt__indexer_logits_symbols[] =
    SYMBOLS(SMELT__BY_ARGS_PER("N", "logit", rows, OF(R))),
                                  smelt__indexer_logits_listed_symbols[] = SYMBOLS(
                                      SMELT__BY_ARGS_TIMES("N", "logit", candidate_count, OF(CB)));

static const struct smelt__scalar_row smelt__indexer_logits_scalars[] = {
    {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(rows, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(candidate_count, INT64, 0, INT32_MAX), .most_key = "candidate_block",
     .unless = "candidate_block"},
    {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},
    {SMELT__SCALAR(scale, FLOAT, 0, 0), .zero = 1},
};

/* The kernels that gather listed keys keep the step between keys in 32 bits. */
#define ROWS(quantized, most, ...)                                                                 \
    {                                                                                              \
        [OF(Q)] = {SMELT__TENSOR(q, quantized, INPUT, OF(T), OF(H), OF(D)), .whole_rows = 1},      \
        [OF(K)] = {SMELT__TENSOR(k, quantized, INPUT, OF(S), OF(D)), .whole_rows = 1,              \
                   .most_stride = (most)},                                                         \
        [OF(WEIGHTS)] = {SMELT__TENSOR(weights, FP32, INPUT, OF(T), OF(H)), .key = "weights"},     \
        [OF(K_SCALE)] = {SMELT__TENSOR(k_scale, FP32, INPUT, OF(S)), .key = "dtype"},              \
        [OF(WINDOW_BEGIN)] = {SMELT__TENSOR(window_begin, INT32, INPUT, OF(T))},                   \
        [OF(WINDOW_END)] = {SMELT__TENSOR(window_end, INT32, INPUT, OF(T))},                       \
        [OF(LOGITS)] = {SMELT__TENSOR(logits, FP32, OUTPUT, __VA_ARGS__)},                         \
        [OF(CANDIDATES)] = {SMELT__TENSOR(candidates, INT32, INPUT, OF(T), OF(C)),                 \
                            .key = "candidate_block"},                                             \
    }

/* With groups=1 the logits have no dimension G; with block_max=1 they have S in place of N. */
static const struct smelt__tensor_row
    smelt__indexer_logits_tensors[] = ROWS(BF16, 0, OF(T), OF(S)),
    smelt__indexer_logits_fp8_tensors[] = ROWS(E4M3, 0, OF(T), OF(S)),
    smelt__indexer_logits_groups_tensors[] = ROWS(BF16, 0, OF(T), OF(G), OF(S)),
    smelt__indexer_logits_groups_fp8_tensors[] = ROWS(E4M3, 0, OF(T), OF(G), OF(S)),
    smelt__indexer_logits_blocks_tensors[] = ROWS(BF16, 0, OF(T), OF(N)),
    smelt__indexer_logits_blocks_fp8_tensors[] = ROWS(E4M3, 0, OF(T), OF(N)),
    smelt__indexer_logits_group_blocks_tensors[] = ROWS(BF16, 0, OF(T), OF(G), OF(N)),
    smelt__indexer_logits_group_blocks_fp8_tensors[] = ROWS(E4M3, 0, OF(T), OF(G), OF(N)),
    smelt__indexer_logits_listed_tensors[] = ROWS(BF16, INT32_MAX, OF(T), OF(N)),
    smelt__indexer_logits_listed_fp8_tensors[] = ROWS(E4M3, INT32_MAX, OF(T), OF(N)),
    smelt__indexer_logits_group_listed_tensors[] = ROWS(BF16, INT32_MAX, OF(T), OF(G), OF(N)),
    smelt__indexer_logits_group_listed_fp8_tensors[] = ROWS(E4M3, INT32_MAX, OF(T), OF(G), OF(N));

#define TABLE(symbols, rows)                                                                       \
    {                                                                                              \
        SMELT__ARGS("SMELT_INDEXER_LOGITS_ARGS_INIT", candidates, symbols,                         \
                    smelt__indexer_logits_scalars, rows)                                           \
    }
#define ALL(rows) TABLE(smelt__indexer_logits_symbols, rows)
#define LISTED(rows) TABLE(smelt__indexer_logits_listed_symbols, rows)

static const struct smelt__args_table smelt__indexer_logits_table[] = {
    ALL(smelt__indexer_logits_tensors),
    ALL(smelt__indexer_logits_fp8_tensors),
    ALL(smelt__indexer_logits_groups_tensors),
    ALL(smelt__indexer_logits_groups_fp8_tensors),
    ALL(smelt__indexer_logits_blocks_tensors),
    ALL(smelt__indexer_logits_blocks_fp8_tensors),
    ALL(smelt__indexer_logits_group_blocks_tensors),
    ALL(smelt__indexer_logits_group_blocks_fp8_tensors),
    LISTED(smelt__indexer_logits_listed_tensors),
    LISTED(smelt__indexer_logits_listed_fp8_tensors),
    LISTED(smelt__indexer_logits_group_listed_tensors),
    LISTED(smelt__indexer_logits_group_listed_fp8_tensors),
};

/* The number of a spec's table. `fp8`: 1 with e4m3. */
static inline int smelt__indexer_logits_table_number(int fp8, int groups, int block_max,
                                                     int candidate_block) {
    const int form = candidate_block > 0 ? 8 : block_max > 1 ? 4 : 0;
    return (fp8 ? 1 : 0) + (groups > 1 ? 2 : 0) + form;
}

#undef ARGS
#undef OF
#undef ROWS
#undef TABLE
#undef ALL
#undef LISTED
#undef SYMBOLS
