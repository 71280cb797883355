/* The arguments of the operator indexer_clean as a table (args_table.h); smelt/indexer_clean.h has
 * their meaning. */
#pragma once

#include "ops/args_table.h"
#include "smelt/indexer_clean.h"

/* Extents by number. */
enum smelt__indexer_clean_symbol {
    SMELT__INDEXER_CLEAN_T,
    SMELT__INDEXER_CLEAN_S,
};

/* Rows by number. */
enum smelt__indexer_clean_tensor {
    SMELT__INDEXER_CLEAN_WINDOW_BEGIN,
    SMELT__INDEXER_CLEAN_WINDOW_END,
    SMELT__INDEXER_CLEAN_LOGITS,
    SMELT__INDEXER_CLEAN_TENSORS
};

#define OF(name) SMELT__INDEXER_CLEAN_##name
#define ARGS smelt_indexer_clean_args

static const struct smelt__symbol smelt__indexer_clean_symbols[] = {
    [OF(T)] = SMELT__BY_ARGS("T", "token", tokens),
    [OF(S)] = SMELT__BY_ARGS("S", "row", rows),
};

static const struct smelt__scalar_row smelt__indexer_clean_scalars[] = {
    {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(rows, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},
    {SMELT__SCALAR(reserved, INT, 0, 0)},
};

static const struct smelt__tensor_row smelt__indexer_clean_tensors[] = {
    [OF(WINDOW_BEGIN)] = {SMELT__TENSOR(window_begin, INT32, INPUT, OF(T))},
    [OF(WINDOW_END)] = {SMELT__TENSOR(window_end, INT32, INPUT, OF(T))},
    [OF(LOGITS)] = {SMELT__TENSOR(logits, FP32, OUTPUT, OF(T), OF(S))},
};

static const struct smelt__args_table smelt__indexer_clean_table = {
    SMELT__ARGS("SMELT_INDEXER_CLEAN_ARGS_INIT", logits, smelt__indexer_clean_symbols,
                smelt__indexer_clean_scalars, smelt__indexer_clean_tensors),
};

#undef ARGS
#undef OF
