/* See indexer_logits_table.h. */
#include "ops/indexer_logits_table.h"

#include "codegen/families/indexer_keys.h"
#include "smelt/indexer_logits.h"

#define ARGS smelt_indexer_logits_args
#define NUMBER(name) SMELT__INDEXER_LOGITS_##name

enum { T, S, H, D }; /* enum smelt__indexer_logits_symbol */

static const struct smelt__symbol symbols[] = {
    [T] = SMELT__BY_ARGS("T", "token", tokens),
    [S] = SMELT__BY_ARGS("S", "row", rows),
    [H] = SMELT__BY_KEY("H", "head", "heads"),
    [D] = SMELT__BY_KEY("D", "element", "dim"),
};

static const struct smelt__scalar_row scalars[] = {
    {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(rows, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},
    {SMELT__SCALAR(reserved, INT, 0, 0)},
};

#define ROWS(quantized)                                                                            \
    {                                                                                              \
        [NUMBER(Q)] = {SMELT__TENSOR(q, quantized, INPUT, T, H, D), .whole_rows = 1},              \
        [NUMBER(K)] = {SMELT__TENSOR(k, quantized, INPUT, S, D), .whole_rows = 1},                 \
        [NUMBER(WEIGHTS)] = {SMELT__TENSOR(weights, FP32, INPUT, T, H)},                           \
        [NUMBER(K_SCALE)] = {SMELT__TENSOR(k_scale, FP32, INPUT, S), .key = "dtype"},              \
        [NUMBER(WINDOW_BEGIN)] = {SMELT__TENSOR(window_begin, INT32, INPUT, T)},                   \
        [NUMBER(WINDOW_END)] = {SMELT__TENSOR(window_end, INT32, INPUT, T)},                       \
        [NUMBER(LOGITS)] = {SMELT__TENSOR(logits, FP32, OUTPUT, T, S)},                            \
    }

static const struct smelt__tensor_row rows[] = ROWS(BF16), fp8_rows[] = ROWS(E4M3);

const struct smelt__args_table smelt__indexer_logits_table[] = {
    [SMELT__INDEXER_BF16] = {SMELT__ARGS("SMELT_INDEXER_LOGITS_ARGS_INIT", logits, symbols, scalars,
                                         rows)},
    [SMELT__INDEXER_FP8] = {SMELT__ARGS("SMELT_INDEXER_LOGITS_ARGS_INIT", logits, symbols, scalars,
                                        fp8_rows)},
};
