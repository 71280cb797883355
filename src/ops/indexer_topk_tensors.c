/* See indexer_topk_tensors.h. */
#include "ops/indexer_topk_tensors.h"

#include "smelt/indexer_topk.h"
#include "smelt/kernels.h"

#define SYMBOL(name) SMELT__INDEXER_TOPK_##name
#define FIELD(tensor) .name = #tensor, .field = offsetof(smelt_indexer_topk_args, tensor)
#define INPUT(tensor, type)                                                                        \
    FIELD(tensor), .element = (type), .role = SMELT__INPUT, .passes = SMELT_PASS_FORWARD
#define OUTPUT(tensor, type)                                                                       \
    FIELD(tensor), .element = (type), .role = SMELT__OUTPUT, .passes = SMELT_PASS_FORWARD

static const struct smelt__symbol symbols[SMELT__INDEXER_TOPK_SYMBOLS] = {
    [SYMBOL(T)] = {"T", "token"},   [SYMBOL(S)] = {"S", "row"},     [SYMBOL(H)] = {"H", "head"},
    [SYMBOL(D)] = {"D", "element"}, [SYMBOL(K)] = {"topk", "slot"},
};

#define ROWS(type)                                                                                 \
    {                                                                                              \
        [SYMBOL(QUERY)] = {INPUT(q, type), .whole_rows = 1, .dimensions = 3,                       \
                           .shape = {SYMBOL(T), SYMBOL(H), SYMBOL(D)}},                            \
        [SYMBOL(KEY)] = {INPUT(k, type), .whole_rows = 1, .dimensions = 2,                         \
                         .shape = {SYMBOL(S), SYMBOL(D)}},                                         \
        [SYMBOL(WEIGHTS)] = {INPUT(weights, SMELT__FP32), .dimensions = 2,                         \
                             .shape = {SYMBOL(T), SYMBOL(H)}},                                     \
        [SYMBOL(KEY_SCALE)] = {INPUT(k_scale, SMELT__FP32), .optional = 1, .dimensions = 1,        \
                               .shape = {SYMBOL(S)}},                                              \
        [SYMBOL(WINDOW_BEGIN)] = {INPUT(window_begin, SMELT__INT32), .dimensions = 1,              \
                                  .shape = {SYMBOL(T)}},                                           \
        [SYMBOL(WINDOW_END)] = {INPUT(window_end, SMELT__INT32), .dimensions = 1,                  \
                                .shape = {SYMBOL(T)}},                                             \
        [SYMBOL(OFFSET)] = {INPUT(offset, SMELT__INT32), .optional = 1, .dimensions = 1,           \
                            .shape = {SYMBOL(T)}},                                                 \
        [SYMBOL(INDICES)] = {OUTPUT(indices, SMELT__INT32), .dimensions = 2,                       \
                             .shape = {SYMBOL(T), SYMBOL(K)}},                                     \
        [SYMBOL(VALUES)] = {OUTPUT(values, SMELT__FP32), .optional = 1, .dimensions = 2,           \
                            .shape = {SYMBOL(T), SYMBOL(K)}},                                      \
        [SYMBOL(LENGTHS)] = {OUTPUT(lengths, SMELT__INT32), .optional = 1, .dimensions = 1,        \
                             .shape = {SYMBOL(T)}},                                                \
    }

static const struct smelt__tensor_row rows[2][SMELT__INDEXER_TOPK_TENSORS] = {
    [SMELT_INDEXER_BF16] = ROWS(SMELT__BF16),
    [SMELT_INDEXER_FP8] = ROWS(SMELT__E4M3),
};

#define TABLE(dtype)                                                                               \
    {                                                                                              \
        .symbols = symbols, .symbol_count = SMELT__INDEXER_TOPK_SYMBOLS, .rows = rows[dtype],      \
        .count = SMELT__INDEXER_TOPK_TENSORS, .args_bytes = sizeof(smelt_indexer_topk_args)        \
    }

const struct smelt__tensor_table smelt__indexer_topk_tensors[2] = {
    [SMELT_INDEXER_BF16] = TABLE(SMELT_INDEXER_BF16),
    [SMELT_INDEXER_FP8] = TABLE(SMELT_INDEXER_FP8),
};
