/* The arguments of the operator indexer_logits as a table (args_table.h); smelt/indexer_logits.h has
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
    SMELT__INDEXER_LOGITS_SYMBOLS
};

/* Rows by number. */
enum smelt__indexer_logits_tensor {
    SMELT__INDEXER_LOGITS_Q,
    SMELT__INDEXER_LOGITS_K,
    SMELT__INDEXER_LOGITS_WEIGHTS,
    SMELT__INDEXER_LOGITS_K_SCALE, /* optional: there with fp8 */
    SMELT__INDEXER_LOGITS_WINDOW_BEGIN,
    SMELT__INDEXER_LOGITS_WINDOW_END,
    SMELT__INDEXER_LOGITS_LOGITS,
    SMELT__INDEXER_LOGITS_TENSORS
};

#define OF(name) SMELT__INDEXER_LOGITS_##name
#define ARGS smelt_indexer_logits_args

static const struct smelt__symbol smelt__indexer_logits_symbols[] = {
    [OF(T)] = SMELT__BY_ARGS("T", "token", tokens),
    [OF(S)] = SMELT__BY_ARGS("S", "row", rows),
    [OF(H)] = SMELT__BY_KEY("H", "head", "heads"),
    [OF(D)] = SMELT__BY_KEY("D", "element", "dim"),
};

static const struct smelt__scalar_row smelt__indexer_logits_scalars[] = {
    {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(rows, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},
    {SMELT__SCALAR(reserved, INT, 0, 0)},
};

#define ROWS(quantized)                                                                            \
    {                                                                                              \
        [OF(Q)] = {SMELT__TENSOR(q, quantized, INPUT, OF(T), OF(H), OF(D)), .whole_rows = 1},      \
        [OF(K)] = {SMELT__TENSOR(k, quantized, INPUT, OF(S), OF(D)), .whole_rows = 1},             \
        [OF(WEIGHTS)] = {SMELT__TENSOR(weights, FP32, INPUT, OF(T), OF(H))},                       \
        [OF(K_SCALE)] = {SMELT__TENSOR(k_scale, FP32, INPUT, OF(S)), .key = "dtype"},              \
        [OF(WINDOW_BEGIN)] = {SMELT__TENSOR(window_begin, INT32, INPUT, OF(T))},                   \
        [OF(WINDOW_END)] = {SMELT__TENSOR(window_end, INT32, INPUT, OF(T))},                       \
        [OF(LOGITS)] = {SMELT__TENSOR(logits, FP32, OUTPUT, OF(T), OF(S))},                        \
    }

static const struct smelt__tensor_row smelt__indexer_logits_tensors[] = ROWS(BF16),
                                      smelt__indexer_logits_fp8_tensors[] = ROWS(E4M3);

static const struct smelt__args_table smelt__indexer_logits_table[] = {
    {/* bf16 */ SMELT__ARGS("SMELT_INDEXER_LOGITS_ARGS_INIT", logits, smelt__indexer_logits_symbols,
                            smelt__indexer_logits_scalars, smelt__indexer_logits_tensors)},
    {/* fp8 */ SMELT__ARGS("SMELT_INDEXER_LOGITS_ARGS_INIT", logits, smelt__indexer_logits_symbols,
                           smelt__indexer_logits_scalars, smelt__indexer_logits_fp8_tensors)},
};

#undef ARGS
#undef OF
#undef ROWS
