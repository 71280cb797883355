/* The arguments of the operator sparse_attn as tables (args_table.h); smelt/sparse_attn.h has their
 * meaning. */
#pragma once

#include "ops/args_table.h"
#include "smelt/sparse_attn.h"

enum {
    SMELT__PARTITION_ALIGNMENT = 16, /* bytes: of a forward call's workspace, each array in it */
    /* Slots a row may have, since an extent shares a word with a bucket. */
    SMELT__PARTITION_MOST_SLOTS = (1 << 28) - 1
};

#define SMELT__SPARSE_ATTN_OF(name) SMELT__SPARSE_ATTN_##name

/* The rows that sparse_scores has, too: extents, and inputs of all passes, with the same numbers. The
 * kernels keep the step between KV rows in 32 bits. */
#define SMELT__SPARSE_ATTN_EXTENTS(ROW)                                                            \
    SMELT__LISTS_EXTENTS(ROW)                                                                      \
    ROW(H, SMELT__BY_KEY("H", "head", "heads"))                                                    \
    ROW(DQK, SMELT__BY_KEY("dqk", "element", "dqk"))                                               \
    ROW(DV, SMELT__BY_KEY("dv", "element", "dv"))
#define SMELT__SPARSE_ATTN_INPUTS(ROW)                                                             \
    ROW(Q,                                                                                         \
        SMELT__TENSOR(q, BF16, INPUT, SMELT__SPARSE_ATTN_OF(B), SMELT__SPARSE_ATTN_OF(T),          \
                      SMELT__SPARSE_ATTN_OF(H), SMELT__SPARSE_ATTN_OF(DQK)),                       \
        .whole_rows = 1)                                                                           \
    ROW(KV,                                                                                        \
        SMELT__TENSOR(kv, BF16, INPUT, SMELT__SPARSE_ATTN_OF(B), SMELT__SPARSE_ATTN_OF(S),         \
                      SMELT__SPARSE_ATTN_OF(DQK)),                                                 \
        .whole_rows = 1, .most_stride = INT32_MAX)                                                 \
    ROW(INDICES, SMELT__TENSOR(indices, INT32, INPUT, SMELT__SPARSE_ATTN_OF(B),                    \
                               SMELT__SPARSE_ATTN_OF(T), SMELT__SPARSE_ATTN_OF(WIDTH)))            \
    ROW(TOPK_LENGTH,                                                                               \
        SMELT__TENSOR(topk_length, INT32, INPUT, SMELT__SPARSE_ATTN_OF(B),                         \
                      SMELT__SPARSE_ATTN_OF(T), SMELT__SPARSE_ATTN_OF(ONE)),                       \
        .optional = 1)                                                                             \
    ROW(SINK, SMELT__TENSOR(sink, FP32, INPUT, SMELT__SPARSE_ATTN_OF(H)), .key = "sink")           \
    SMELT__QUERY_LIST(ROW, SMELT__SPARSE_ATTN_OF(LISTED), SMELT__SPARSE_ATTN_OF(ONE))
#define SMELT__SPARSE_ATTN_NUMBERS SMELT__LISTS_NUMBERS(SMELT__PARTITION_MOST_SLOTS)

#define OF SMELT__SPARSE_ATTN_OF
#define ARGS smelt_sparse_attn_args

enum smelt__sparse_attn_symbol { SMELT__SPARSE_ATTN_EXTENTS(SMELT__NUMBER) };
#define SYMBOLS SMELT__SPARSE_ATTN_EXTENTS

static const struct smelt__scalar_row smelt__sparse_attn_scalars[] = {SMELT__SPARSE_ATTN_NUMBERS};

#define TENSORS(ROW, ...)                                                                          \
    SMELT__SPARSE_ATTN_INPUTS(ROW)                                                                 \
    ROW(OUT, SMELT__TENSOR(out, BF16, OUTPUT, OF(B), OF(T), OF(H), OF(DV)), .whole_rows = 1)       \
    ROW(LSE, SMELT__TENSOR(lse, FP32, OUTPUT, OF(B), OF(T), OF(H), OF(ONE)))                       \
    ROW(MAX_LOGITS, SMELT__TENSOR(max_logits, FP32, OUTPUT, OF(B), OF(T), OF(H), OF(ONE)),         \
        .optional = 1)

enum smelt__sparse_attn_tensor { TENSORS(SMELT__NUMBER, ) };

static const struct smelt__args_table smelt__sparse_attn_table = {
    SMELT__ARGS("SMELT_SPARSE_ATTN_ARGS_INIT", workspace_bytes, SMELT__SYMBOLS,
                smelt__sparse_attn_scalars, SMELT__ROWS()),
    SMELT__WORKSPACE(SMELT__PARTITION_ALIGNMENT),
};

#undef ARGS
#undef TENSORS
#define ARGS smelt_sparse_attn_grad_args

static const struct smelt__scalar_row smelt__sparse_attn_grad_scalars[] = {
    SMELT__SPARSE_ATTN_NUMBERS,
    {SMELT__SCALAR(workspace_limit, SIZE, 0, 0)},
};

#define TENSORS(ROW, ...)                                                                          \
    SMELT__SPARSE_ATTN_INPUTS(ROW)                                                                 \
    ROW(OUT, SMELT__TENSOR(out, BF16, INPUT, OF(B), OF(T), OF(H), OF(DV)), .whole_rows = 1)        \
    ROW(LSE, SMELT__TENSOR(lse, FP32, INPUT, OF(B), OF(T), OF(H), OF(ONE)))                        \
    ROW(GRAD_OUT, SMELT__TENSOR(grad_out, BF16, INPUT, OF(B), OF(T), OF(H), OF(DV)),               \
        .whole_rows = 1)                                                                           \
    ROW(DQ, SMELT__TENSOR(dq, BF16, OUTPUT, OF(B), OF(T), OF(H), OF(DQK)), .whole_rows = 1)        \
    SMELT__KEY_GRADS(ROW, DKV, dkv, 1, OF(B), OF(S), OF(DQK))                                      \
    ROW(DSINK, SMELT__TENSOR(dsink, FP32, OUTPUT, OF(H)), .key = "sink", .optional = 1)

enum smelt__sparse_attn_grad_tensor { TENSORS(SMELT__GRAD_NUMBER, ) };

static const struct smelt__args_table smelt__sparse_attn_grad_table = {
    SMELT__ARGS("SMELT_SPARSE_ATTN_GRAD_ARGS_INIT", workspace_limit, SMELT__SYMBOLS,
                smelt__sparse_attn_grad_scalars, SMELT__ROWS()),
    SMELT__WORKSPACE(SMELT__WORKSPACE_ALIGNMENT),
    .partition = offsetof(ARGS, partition),
    .partition_bytes = offsetof(ARGS, partition_bytes),
};

#include "ops/args_table_end.h"
