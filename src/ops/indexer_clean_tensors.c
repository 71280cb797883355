/* See indexer_clean_tensors.h. */
#include "ops/indexer_clean_tensors.h"

#include "smelt/indexer_clean.h"
#include "smelt/kernels.h"

#define SYMBOL(name) SMELT__INDEXER_CLEAN_##name
#define FIELD(tensor)                                                                              \
    .name = #tensor, .field = offsetof(smelt_indexer_clean_args, tensor),                          \
    .passes = SMELT_PASS_FORWARD

static const struct smelt__symbol symbols[SMELT__INDEXER_CLEAN_SYMBOLS] = {
    [SYMBOL(T)] = {"T", "token"},
    [SYMBOL(S)] = {"S", "row"},
};

static const struct smelt__tensor_row rows[SMELT__INDEXER_CLEAN_TENSORS] = {
    [SYMBOL(WINDOW_BEGIN)] = {FIELD(window_begin), .element = SMELT__INT32, .role = SMELT__INPUT,
                              .dimensions = 1, .shape = {SYMBOL(T)}},
    [SYMBOL(WINDOW_END)] = {FIELD(window_end), .element = SMELT__INT32, .role = SMELT__INPUT,
                            .dimensions = 1, .shape = {SYMBOL(T)}},
    [SYMBOL(LOGITS)] = {FIELD(logits), .element = SMELT__FP32, .role = SMELT__OUTPUT,
                        .dimensions = 2, .shape = {SYMBOL(T), SYMBOL(S)}},
};

const struct smelt__tensor_table smelt__indexer_clean_tensors = {
    .symbols = symbols,
    .symbol_count = SMELT__INDEXER_CLEAN_SYMBOLS,
    .rows = rows,
    .count = SMELT__INDEXER_CLEAN_TENSORS,
    .args_bytes = sizeof(smelt_indexer_clean_args),
};
