/* See indexer_scores_tensors.h. */
#include "ops/indexer_scores_tensors.h"

#include "smelt/indexer_scores.h"
#include "smelt/kernels.h"

#define SYMBOL(name) SMELT__INDEXER_SCORES_##name
#define FIELD(tensor) .name = #tensor, .field = offsetof(smelt_indexer_scores_args, tensor)
#define INPUT(tensor, type)                                                                        \
    FIELD(tensor), .element = (type), .role = SMELT__INPUT, .passes = SMELT_PASS_FORWARD

static const struct smelt__symbol symbols[SMELT__INDEXER_SCORES_SYMBOLS] = {
    [SYMBOL(T)] = {"T", "token"},        [SYMBOL(S)] = {"S", "row"},
    [SYMBOL(H)] = {"H", "head"},         [SYMBOL(D)] = {"D", "element"},
    [SYMBOL(WIDTH)] = {"width", "slot"}, [SYMBOL(ONE)] = {"1", "element"},
};

static const struct smelt__tensor_row rows[SMELT__INDEXER_SCORES_TENSORS] = {
    [SYMBOL(Q)] = {INPUT(q, SMELT__BF16), .whole_rows = 1, .dimensions = 3,
                   .shape = {SYMBOL(T), SYMBOL(H), SYMBOL(D)}},
    /* The kernels keep the step between keys in 32 bits. */
    [SYMBOL(K)] = {INPUT(k, SMELT__BF16), .whole_rows = 1, .dimensions = 2,
                   .shape = {SYMBOL(S), SYMBOL(D)}, .most_stride = INT32_MAX},
    [SYMBOL(WEIGHTS)] = {INPUT(weights, SMELT__FP32), .dimensions = 2,
                         .shape = {SYMBOL(T), SYMBOL(H)}},
    [SYMBOL(INDICES)] = {INPUT(indices, SMELT__INT32), .dimensions = 2,
                         .shape = {SYMBOL(T), SYMBOL(WIDTH)}},
    [SYMBOL(TOPK_LENGTH)] = {INPUT(topk_length, SMELT__INT32), .optional = 1, .dimensions = 2,
                             .shape = {SYMBOL(T), SYMBOL(ONE)}},
    [SYMBOL(LOGITS)] = {FIELD(logits), .element = SMELT__FP32, .role = SMELT__OUTPUT,
                        .passes = SMELT_PASS_FORWARD, .dimensions = 2,
                        .shape = {SYMBOL(T), SYMBOL(WIDTH)}},
};

const struct smelt__tensor_table smelt__indexer_scores_tensors = {
    .symbols = symbols,
    .symbol_count = SMELT__INDEXER_SCORES_SYMBOLS,
    .rows = rows,
    .count = SMELT__INDEXER_SCORES_TENSORS,
    .args_bytes = sizeof(smelt_indexer_scores_args),
};
