/* See indexer_quantize_tensors.h. */
#include "ops/indexer_quantize_tensors.h"

#include "smelt/indexer_quantize.h"
#include "smelt/kernels.h"

#define SYMBOL(name) SMELT__INDEXER_QUANTIZE_##name
#define FIELD(tensor)                                                                              \
    .name = #tensor, .field = offsetof(smelt_indexer_quantize_args, tensor),                       \
    .passes = SMELT_PASS_FORWARD

static const struct smelt__symbol symbols[SMELT__INDEXER_QUANTIZE_SYMBOLS] = {
    [SYMBOL(N)] = {"N", "row"},
    [SYMBOL(D)] = {"D", "element"},
};

static const struct smelt__tensor_row rows[SMELT__INDEXER_QUANTIZE_TENSORS] = {
    [SYMBOL(X)] = {FIELD(x), .element = SMELT__BF16, .role = SMELT__INPUT, .whole_rows = 1,
                   .dimensions = 2, .shape = {SYMBOL(N), SYMBOL(D)}},
    [SYMBOL(Y)] = {FIELD(y), .element = SMELT__E4M3, .role = SMELT__OUTPUT, .whole_rows = 1,
                   .dimensions = 2, .shape = {SYMBOL(N), SYMBOL(D)}},
    [SYMBOL(SCALE)] = {FIELD(scale), .element = SMELT__FP32, .role = SMELT__OUTPUT, .dimensions = 1,
                       .shape = {SYMBOL(N)}},
    [SYMBOL(FACTOR)] = {FIELD(factor), .element = SMELT__FP32, .role = SMELT__INPUT, .optional = 1,
                        .dimensions = 1, .shape = {SYMBOL(N)}},
};

const struct smelt__tensor_table smelt__indexer_quantize_tensors = {
    .symbols = symbols,
    .symbol_count = SMELT__INDEXER_QUANTIZE_SYMBOLS,
    .rows = rows,
    .count = SMELT__INDEXER_QUANTIZE_TENSORS,
    .args_bytes = sizeof(smelt_indexer_quantize_args),
};
