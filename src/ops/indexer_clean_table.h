/* The arguments of the operator indexer_clean as a table (args_table.h); smelt/indexer_clean.h has
 * their meaning. */
#pragma once

#include "ops/args_table.h"
#include "smelt/indexer_clean.h"

#define OF(name) SMELT__INDEXER_CLEAN_##name
#define ARGS smelt_indexer_clean_args

#define SYMBOLS(ROW)                                                                               \
    ROW(T, SMELT__BY_ARGS("T", "token", tokens))                                                   \
    ROW(S, SMELT__BY_ARGS("S", "row", rows))

enum smelt__indexer_clean_symbol { SYMBOLS(SMELT__NUMBER) };

static const struct smelt__scalar_row smelt__indexer_clean_scalars[] = {
    {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(rows, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},
    {SMELT__SCALAR(reserved, INT, 0, 0)},
};

#define TENSORS(ROW, ...)                                                                          \
    ROW(WINDOW_BEGIN, SMELT__TENSOR(window_begin, INT32, INPUT, OF(T)))                            \
    ROW(WINDOW_END, SMELT__TENSOR(window_end, INT32, INPUT, OF(T)))                                \
    ROW(LOGITS, SMELT__TENSOR(logits, FP32, OUTPUT, OF(T), OF(S)))

enum smelt__indexer_clean_tensor { TENSORS(SMELT__NUMBER, ) };

static const struct smelt__args_table smelt__indexer_clean_table = {
    SMELT__ARGS("SMELT_INDEXER_CLEAN_ARGS_INIT", logits, SMELT__SYMBOLS,
                smelt__indexer_clean_scalars, SMELT__ROWS()),
};

#include "ops/args_table_end.h"
