/* See indexer_clean_table.h. */
#include "ops/indexer_clean_table.h"

#include "smelt/indexer_clean.h"

#define ARGS smelt_indexer_clean_args
#define NUMBER(name) SMELT__INDEXER_CLEAN_##name

enum { T, S }; /* enum smelt__indexer_clean_symbol */

static const struct smelt__symbol symbols[] = {
    [T] = SMELT__BY_ARGS("T", "token", tokens),
    [S] = SMELT__BY_ARGS("S", "row", rows),
};

static const struct smelt__scalar_row scalars[] = {
    {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(rows, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},
    {SMELT__SCALAR(reserved, INT, 0, 0)},
};

static const struct smelt__tensor_row rows[] = {
    [NUMBER(WINDOW_BEGIN)] = {SMELT__TENSOR(window_begin, INT32, INPUT, T)},
    [NUMBER(WINDOW_END)] = {SMELT__TENSOR(window_end, INT32, INPUT, T)},
    [NUMBER(LOGITS)] = {SMELT__TENSOR(logits, FP32, OUTPUT, T, S)},
};

const struct smelt__args_table smelt__indexer_clean_table = {
    SMELT__ARGS("SMELT_INDEXER_CLEAN_ARGS_INIT", logits, symbols, scalars, rows),
};
