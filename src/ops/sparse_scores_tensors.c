/* See sparse_scores_tensors.h. */
#include "ops/sparse_scores_tensors.h"

#include "smelt/kernels.h"
#include "smelt/sparse_scores.h"

#define SYMBOL(name) SMELT__SPARSE_ATTN_##name
#define TENSOR(name) SMELT__SPARSE_SCORES_##name
#define INPUT(tensor, type)                                                                        \
    .name = #tensor, .field = offsetof(smelt_sparse_scores_args, tensor), .element = (type),       \
    .role = SMELT__INPUT, .passes = SMELT_PASS_FORWARD

static const struct smelt__tensor_row rows[TENSOR(TENSORS)] = {
    [TENSOR(Q)] = {INPUT(q, SMELT__BF16), .whole_rows = 1, .dimensions = 4,
                   .shape = {SYMBOL(B), SYMBOL(T), SYMBOL(H), SYMBOL(DQK)}},
    /* The kernels keep the step between KV rows in 32 bits. */
    [TENSOR(KV)] = {INPUT(kv, SMELT__BF16), .whole_rows = 1, .dimensions = 3,
                    .shape = {SYMBOL(B), SYMBOL(S), SYMBOL(DQK)}, .most_stride = INT32_MAX},
    [TENSOR(INDICES)] = {INPUT(indices, SMELT__INT32), .dimensions = 3,
                         .shape = {SYMBOL(B), SYMBOL(T), SYMBOL(WIDTH)}},
    [TENSOR(TOPK_LENGTH)] = {INPUT(topk_length, SMELT__INT32), .optional = 1, .dimensions = 3,
                             .shape = {SYMBOL(B), SYMBOL(T), SYMBOL(ONE)}},
    [TENSOR(SINK)] = {INPUT(sink, SMELT__FP32), .optional = 1, .dimensions = 1,
                      .shape = {SYMBOL(H)}},
    [TENSOR(QUERIES)] = {INPUT(queries, SMELT__INT32), .optional = 1, .dimensions = 1,
                         .shape = {SYMBOL(LISTED)}},
    [TENSOR(QUERY_COUNT)] = {INPUT(query_count, SMELT__INT32), .optional = 1, .dimensions = 1,
                             .shape = {SYMBOL(ONE)}},
    [TENSOR(LSE)] = {INPUT(lse, SMELT__FP32), .dimensions = 4,
                     .shape = {SYMBOL(B), SYMBOL(T), SYMBOL(H), SYMBOL(ONE)}},
    [TENSOR(TARGET)] = {.name = "target",
                        .field = offsetof(smelt_sparse_scores_args, target),
                        .element = SMELT__FP32,
                        .role = SMELT__OUTPUT,
                        .passes = SMELT_PASS_FORWARD,
                        .dimensions = 3,
                        .shape = {SYMBOL(B), SYMBOL(T), SYMBOL(WIDTH)}},
};

const struct smelt__tensor_table smelt__sparse_scores_tensors = {
    .symbols = smelt__sparse_attn_symbols,
    .symbol_count = SYMBOL(SYMBOLS),
    .rows = rows,
    .count = TENSOR(TENSORS),
    .args_bytes = sizeof(smelt_sparse_scores_args),
};
