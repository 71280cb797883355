/* See sparse_attn_tensors.h. */
#include "ops/sparse_attn_tensors.h"

#include "smelt/kernels.h"
#include "smelt/sparse_attn.h"

#define SYMBOL(name) SMELT__SPARSE_ATTN_##name
#define FIELD(tensor) .name = #tensor, .field = offsetof(smelt_sparse_attn_args, tensor)
#define GRAD_FIELD(tensor) .name = #tensor, .field = offsetof(smelt_sparse_attn_grad_args, tensor)

const struct smelt__symbol smelt__sparse_attn_symbols[SMELT__SPARSE_ATTN_SYMBOLS] = {
    [SYMBOL(B)] = {"B", "batch"},        [SYMBOL(T)] = {"T", "token"},
    [SYMBOL(S)] = {"S", "row"},          [SYMBOL(H)] = {"H", "head"},
    [SYMBOL(DQK)] = {"dqk", "element"},  [SYMBOL(DV)] = {"dv", "element"},
    [SYMBOL(WIDTH)] = {"width", "slot"}, [SYMBOL(LISTED)] = {"query_capacity", "entry"},
    [SYMBOL(ONE)] = {"1", "element"},
};

static const struct smelt__tensor_row rows[SMELT__SPARSE_ATTN_TENSORS] = {
    [SMELT__SPARSE_ATTN_Q] = {FIELD(q), .element = SMELT__BF16, .role = SMELT__INPUT,
                              .passes = SMELT_PASS_FORWARD, .whole_rows = 1, .dimensions = 4,
                              .shape = {SYMBOL(B), SYMBOL(T), SYMBOL(H), SYMBOL(DQK)}},
    /* The kernels keep the step between KV rows in 32 bits. */
    [SMELT__SPARSE_ATTN_KV] = {FIELD(kv), .element = SMELT__BF16, .role = SMELT__INPUT,
                               .passes = SMELT_PASS_FORWARD, .whole_rows = 1, .dimensions = 3,
                               .shape = {SYMBOL(B), SYMBOL(S), SYMBOL(DQK)},
                               .most_stride = INT32_MAX},
    [SMELT__SPARSE_ATTN_INDICES] = {FIELD(indices), .element = SMELT__INT32, .role = SMELT__INPUT,
                                    .passes = SMELT_PASS_FORWARD, .dimensions = 3,
                                    .shape = {SYMBOL(B), SYMBOL(T), SYMBOL(WIDTH)}},
    [SMELT__SPARSE_ATTN_TOPK_LENGTH] = {FIELD(topk_length), .element = SMELT__INT32,
                                        .role = SMELT__INPUT, .passes = SMELT_PASS_FORWARD,
                                        .optional = 1, .dimensions = 3,
                                        .shape = {SYMBOL(B), SYMBOL(T), SYMBOL(ONE)}},
    [SMELT__SPARSE_ATTN_SINK] = {FIELD(sink), .element = SMELT__FP32, .role = SMELT__INPUT,
                                 .passes = SMELT_PASS_FORWARD, .optional = 1, .dimensions = 1,
                                 .shape = {SYMBOL(H)}},
    [SMELT__SPARSE_ATTN_QUERIES] = {FIELD(queries), .element = SMELT__INT32, .role = SMELT__INPUT,
                                    .passes = SMELT_PASS_FORWARD, .optional = 1, .dimensions = 1,
                                    .shape = {SYMBOL(LISTED)}},
    [SMELT__SPARSE_ATTN_QUERY_COUNT] = {FIELD(query_count), .element = SMELT__INT32,
                                        .role = SMELT__INPUT, .passes = SMELT_PASS_FORWARD,
                                        .optional = 1, .dimensions = 1, .shape = {SYMBOL(ONE)}},
    [SMELT__SPARSE_ATTN_OUT] = {FIELD(out), .element = SMELT__BF16, .role = SMELT__OUTPUT,
                                .passes = SMELT_PASS_FORWARD, .whole_rows = 1, .dimensions = 4,
                                .shape = {SYMBOL(B), SYMBOL(T), SYMBOL(H), SYMBOL(DV)}},
    [SMELT__SPARSE_ATTN_LSE] = {FIELD(lse), .element = SMELT__FP32, .role = SMELT__OUTPUT,
                                .passes = SMELT_PASS_FORWARD, .dimensions = 4,
                                .shape = {SYMBOL(B), SYMBOL(T), SYMBOL(H), SYMBOL(ONE)}},
    [SMELT__SPARSE_ATTN_MAX_LOGITS] = {FIELD(max_logits), .element = SMELT__FP32,
                                       .role = SMELT__OUTPUT, .passes = SMELT_PASS_FORWARD,
                                       .optional = 1, .dimensions = 4,
                                       .shape = {SYMBOL(B), SYMBOL(T), SYMBOL(H), SYMBOL(ONE)}},
};

const struct smelt__tensor_table smelt__sparse_attn_tensors = {
    .symbols = smelt__sparse_attn_symbols,
    .symbol_count = SMELT__SPARSE_ATTN_SYMBOLS,
    .rows = rows,
    .count = SMELT__SPARSE_ATTN_TENSORS,
    .args_bytes = sizeof(smelt_sparse_attn_args),
};

static const struct smelt__tensor_row grad_rows[SMELT__SPARSE_ATTN_GRAD_TENSORS] = {
    [SMELT__SPARSE_ATTN_GRAD_Q] = {GRAD_FIELD(q), .element = SMELT__BF16, .role = SMELT__INPUT,
                                   .passes = SMELT_PASS_BACKWARD, .whole_rows = 1, .dimensions = 4,
                                   .shape = {SYMBOL(B), SYMBOL(T), SYMBOL(H), SYMBOL(DQK)}},
    [SMELT__SPARSE_ATTN_GRAD_KV] = {GRAD_FIELD(kv), .element = SMELT__BF16, .role = SMELT__INPUT,
                                    .passes = SMELT_PASS_BACKWARD, .whole_rows = 1, .dimensions = 3,
                                    .shape = {SYMBOL(B), SYMBOL(S), SYMBOL(DQK)},
                                    .most_stride = INT32_MAX},
    [SMELT__SPARSE_ATTN_GRAD_INDICES] = {GRAD_FIELD(indices), .element = SMELT__INT32,
                                         .role = SMELT__INPUT, .passes = SMELT_PASS_BACKWARD,
                                         .dimensions = 3,
                                         .shape = {SYMBOL(B), SYMBOL(T), SYMBOL(WIDTH)}},
    [SMELT__SPARSE_ATTN_GRAD_TOPK_LENGTH] = {GRAD_FIELD(topk_length), .element = SMELT__INT32,
                                             .role = SMELT__INPUT, .passes = SMELT_PASS_BACKWARD,
                                             .optional = 1, .dimensions = 3,
                                             .shape = {SYMBOL(B), SYMBOL(T), SYMBOL(ONE)}},
    [SMELT__SPARSE_ATTN_GRAD_SINK] = {GRAD_FIELD(sink), .element = SMELT__FP32,
                                      .role = SMELT__INPUT, .passes = SMELT_PASS_BACKWARD,
                                      .optional = 1, .dimensions = 1, .shape = {SYMBOL(H)}},
    [SMELT__SPARSE_ATTN_GRAD_QUERIES] = {GRAD_FIELD(queries), .element = SMELT__INT32,
                                         .role = SMELT__INPUT, .passes = SMELT_PASS_BACKWARD,
                                         .optional = 1, .dimensions = 1, .shape = {SYMBOL(LISTED)}},
    [SMELT__SPARSE_ATTN_GRAD_QUERY_COUNT] = {GRAD_FIELD(query_count), .element = SMELT__INT32,
                                             .role = SMELT__INPUT, .passes = SMELT_PASS_BACKWARD,
                                             .optional = 1, .dimensions = 1,
                                             .shape = {SYMBOL(ONE)}},
    [SMELT__SPARSE_ATTN_GRAD_OUT] = {GRAD_FIELD(out), .element = SMELT__BF16, .role = SMELT__INPUT,
                                     .passes = SMELT_PASS_BACKWARD, .whole_rows = 1,
                                     .dimensions = 4,
                                     .shape = {SYMBOL(B), SYMBOL(T), SYMBOL(H), SYMBOL(DV)}},
    [SMELT__SPARSE_ATTN_GRAD_LSE] = {GRAD_FIELD(lse), .element = SMELT__FP32, .role = SMELT__INPUT,
                                     .passes = SMELT_PASS_BACKWARD, .dimensions = 4,
                                     .shape = {SYMBOL(B), SYMBOL(T), SYMBOL(H), SYMBOL(ONE)}},
    [SMELT__SPARSE_ATTN_GRAD_GRAD_OUT] = {GRAD_FIELD(grad_out), .element = SMELT__BF16,
                                          .role = SMELT__INPUT, .passes = SMELT_PASS_BACKWARD,
                                          .whole_rows = 1, .dimensions = 4,
                                          .shape = {SYMBOL(B), SYMBOL(T), SYMBOL(H), SYMBOL(DV)}},
    [SMELT__SPARSE_ATTN_GRAD_DQ] = {GRAD_FIELD(dq), .element = SMELT__BF16, .role = SMELT__OUTPUT,
                                    .passes = SMELT_PASS_BACKWARD, .whole_rows = 1, .dimensions = 4,
                                    .shape = {SYMBOL(B), SYMBOL(T), SYMBOL(H), SYMBOL(DQK)}},
    [SMELT__SPARSE_ATTN_GRAD_DKV] = {GRAD_FIELD(dkv), .element = SMELT__BF16, .role = SMELT__OUTPUT,
                                     .passes = SMELT_PASS_BACKWARD, .whole_rows = 1, .optional = 1,
                                     .dimensions = 3, .shape = {SYMBOL(B), SYMBOL(S), SYMBOL(DQK)}},
    [SMELT__SPARSE_ATTN_GRAD_DKV_FP32] = {GRAD_FIELD(dkv_fp32), .element = SMELT__FP32,
                                          .role = SMELT__OUTPUT, .passes = SMELT_PASS_BACKWARD,
                                          .whole_rows = 1, .optional = 1, .dimensions = 3,
                                          .shape = {SYMBOL(B), SYMBOL(S), SYMBOL(DQK)}},
    [SMELT__SPARSE_ATTN_GRAD_DKV_SUM] = {GRAD_FIELD(dkv_sum), .element = SMELT__FP32,
                                         .role = SMELT__ACCUMULATED, .passes = SMELT_PASS_BACKWARD,
                                         .whole_rows = 1, .optional = 1, .dimensions = 3,
                                         .shape = {SYMBOL(B), SYMBOL(S), SYMBOL(DQK)}},
    [SMELT__SPARSE_ATTN_GRAD_DSINK] = {GRAD_FIELD(dsink), .element = SMELT__FP32,
                                       .role = SMELT__OUTPUT, .passes = SMELT_PASS_BACKWARD,
                                       .optional = 1, .dimensions = 1, .shape = {SYMBOL(H)}},
};

const struct smelt__tensor_table smelt__sparse_attn_grad_tensors = {
    .symbols = smelt__sparse_attn_symbols,
    .symbol_count = SMELT__SPARSE_ATTN_SYMBOLS,
    .rows = grad_rows,
    .count = SMELT__SPARSE_ATTN_GRAD_TENSORS,
    .args_bytes = sizeof(smelt_sparse_attn_grad_args),
};
