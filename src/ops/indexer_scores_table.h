/* The arguments of the operator indexer_scores as a table (args_table.h); smelt/indexer_scores.h has
 * their meaning. */
#pragma once

#include "ops/args_table.h"
#include "smelt/indexer_scores.h"

/* Extents by number. */
enum smelt__indexer_scores_symbol {
    SMELT__INDEXER_SCORES_T,
    SMELT__INDEXER_SCORES_S,
    SMELT__INDEXER_SCORES_H,
    SMELT__INDEXER_SCORES_D,
    SMELT__INDEXER_SCORES_WIDTH,
    SMELT__INDEXER_SCORES_ONE,
    SMELT__INDEXER_SCORES_R, /* rows of an entry */
    SMELT__INDEXER_SCORES_N  /* slots of a query: R for each entry */
};

/* Rows by number. */
enum smelt__indexer_scores_tensor {
    SMELT__INDEXER_SCORES_Q,
    SMELT__INDEXER_SCORES_K,
    SMELT__INDEXER_SCORES_WEIGHTS,
    SMELT__INDEXER_SCORES_INDICES,
    SMELT__INDEXER_SCORES_TOPK_LENGTH, /* optional */
    SMELT__INDEXER_SCORES_LOGITS,
    SMELT__INDEXER_SCORES_TENSORS
};

#define OF(name) SMELT__INDEXER_SCORES_##name
#define ARGS smelt_indexer_scores_args

static const struct smelt__symbol smelt__indexer_scores_symbols[] = {
    [OF(T)] = SMELT__BY_ARGS("T", "token", tokens),
    [OF(S)] = SMELT__BY_ARGS("S", "row", rows),
    [OF(H)] = SMELT__BY_KEY("H", "head", "heads"),
    [OF(D)] = SMELT__BY_KEY("D", "element", "dim"),
    [OF(WIDTH)] = SMELT__BY_ARGS("width", "slot", width),
    [OF(ONE)] = SMELT__ONE_ELEMENT,
    [OF(R)] = SMELT__BY_KEY("R", "row", "granularity"),
    [OF(N)] = SMELT__BY_ARGS_TIMES("N", "slot", width, OF(R)),
};

static const struct smelt__scalar_row smelt__indexer_scores_scalars[] = {
    {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(rows, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(width, INT64, 1, INT32_MAX), .most_key = "topk"},
    {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},
    {SMELT__SCALAR(reserved, INT, 0, 0)},
};

/* The kernels keep the step between keys in 32 bits. */
#define ROWS(slots)                                                                                \
    {                                                                                              \
        [OF(Q)] = {SMELT__TENSOR(q, BF16, INPUT, OF(T), OF(H), OF(D)), .whole_rows = 1},           \
        [OF(K)] = {SMELT__TENSOR(k, BF16, INPUT, OF(S), OF(D)), .whole_rows = 1,                   \
                   .most_stride = INT32_MAX},                                                      \
        [OF(WEIGHTS)] = {SMELT__TENSOR(weights, FP32, INPUT, OF(T), OF(H))},                       \
        [OF(INDICES)] = {SMELT__TENSOR(indices, INT32, INPUT, OF(T), OF(WIDTH))},                  \
        [OF(TOPK_LENGTH)] = {SMELT__TENSOR(topk_length, INT32, INPUT, OF(T), OF(ONE)),             \
                             .optional = 1},                                                       \
        [OF(LOGITS)] = {SMELT__TENSOR(logits, FP32, OUTPUT, OF(T), slots)},                        \
    }

static const struct smelt__tensor_row smelt__indexer_scores_tensors[] = ROWS(OF(WIDTH)),
                                      smelt__indexer_scores_blocks_tensors[] = ROWS(OF(N));

/* Without and with entries of several rows. */
static const struct smelt__args_table smelt__indexer_scores_table[] = {
    {SMELT__ARGS("SMELT_INDEXER_SCORES_ARGS_INIT", logits, smelt__indexer_scores_symbols,
                 smelt__indexer_scores_scalars, smelt__indexer_scores_tensors)},
    {SMELT__ARGS("SMELT_INDEXER_SCORES_ARGS_INIT", logits, smelt__indexer_scores_symbols,
                 smelt__indexer_scores_scalars, smelt__indexer_scores_blocks_tensors)},
};

#undef ARGS
#undef OF
#undef ROWS
