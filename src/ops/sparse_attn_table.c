/* See sparse_attn_table.h. */
#include "ops/sparse_attn_table.h"

#include "ops/key_grads.h"
#include "ops/sparse_attn_partition.h"
#include "smelt/sparse_attn.h"

enum { B, T, S, H, DQK, DV, WIDTH, LISTED, ONE }; /* enum smelt__sparse_attn_symbol */

#define FIRST(tensor) [SMELT__SPARSE_ATTN_##tensor]
#define GRAD(tensor) [SMELT__SPARSE_ATTN_GRAD_##tensor]

#define ARGS smelt_sparse_attn_args

static const struct smelt__symbol symbols[] = SMELT__SPARSE_ATTN_EXTENTS;

static const struct smelt__scalar_row scalars[] = {SMELT__SPARSE_ATTN_NUMBERS};

static const struct smelt__tensor_row rows[] = {
    FIRST(Q) = {SMELT__TENSOR(q, BF16, INPUT, B, T, H, DQK), .whole_rows = 1},
    /* The kernels keep the step between KV rows in 32 bits. */
    FIRST(KV) = {SMELT__TENSOR(kv, BF16, INPUT, B, S, DQK), .whole_rows = 1,
                 .most_stride = INT32_MAX},
    FIRST(INDICES) = {SMELT__TENSOR(indices, INT32, INPUT, B, T, WIDTH)},
    FIRST(TOPK_LENGTH) = {SMELT__TENSOR(topk_length, INT32, INPUT, B, T, ONE), .optional = 1},
    FIRST(SINK) = {SMELT__TENSOR(sink, FP32, INPUT, H), .key = "sink"},
    FIRST(QUERIES) = {SMELT__TENSOR(queries, INT32, INPUT, LISTED), .optional = 1},
    FIRST(QUERY_COUNT) = {SMELT__TENSOR(query_count, INT32, INPUT, ONE), .optional = 1},
    FIRST(OUT) = {SMELT__TENSOR(out, BF16, OUTPUT, B, T, H, DV), .whole_rows = 1},
    FIRST(LSE) = {SMELT__TENSOR(lse, FP32, OUTPUT, B, T, H, ONE)},
    FIRST(MAX_LOGITS) = {SMELT__TENSOR(max_logits, FP32, OUTPUT, B, T, H, ONE), .optional = 1},
};

const struct smelt__args_table smelt__sparse_attn_table = {
    SMELT__ARGS("SMELT_SPARSE_ATTN_ARGS_INIT", workspace_bytes, symbols, scalars, rows),
    SMELT__WORKSPACE(SMELT__PARTITION_ALIGNMENT),
};

#undef ARGS
#define ARGS smelt_sparse_attn_grad_args

static const struct smelt__symbol grad_symbols[] = SMELT__SPARSE_ATTN_EXTENTS;

static const struct smelt__scalar_row grad_scalars[] = {
    SMELT__SPARSE_ATTN_NUMBERS,
    {SMELT__SCALAR(workspace_limit, SIZE, 0, 0)},
};

static const struct smelt__tensor_row grad_rows[] = {
    GRAD(Q) = {SMELT__TENSOR(q, BF16, INPUT, B, T, H, DQK), .whole_rows = 1},
    GRAD(KV) = {SMELT__TENSOR(kv, BF16, INPUT, B, S, DQK), .whole_rows = 1,
                .most_stride = INT32_MAX},
    GRAD(INDICES) = {SMELT__TENSOR(indices, INT32, INPUT, B, T, WIDTH)},
    GRAD(TOPK_LENGTH) = {SMELT__TENSOR(topk_length, INT32, INPUT, B, T, ONE), .optional = 1},
    GRAD(SINK) = {SMELT__TENSOR(sink, FP32, INPUT, H), .key = "sink"},
    GRAD(QUERIES) = {SMELT__TENSOR(queries, INT32, INPUT, LISTED), .optional = 1},
    GRAD(QUERY_COUNT) = {SMELT__TENSOR(query_count, INT32, INPUT, ONE), .optional = 1},
    GRAD(OUT) = {SMELT__TENSOR(out, BF16, INPUT, B, T, H, DV), .whole_rows = 1},
    GRAD(LSE) = {SMELT__TENSOR(lse, FP32, INPUT, B, T, H, ONE)},
    GRAD(GRAD_OUT) = {SMELT__TENSOR(grad_out, BF16, INPUT, B, T, H, DV), .whole_rows = 1},
    GRAD(DQ) = {SMELT__TENSOR(dq, BF16, OUTPUT, B, T, H, DQK), .whole_rows = 1},
    GRAD(DKV) = {SMELT__TENSOR(dkv, BF16, OUTPUT, B, S, DQK), .whole_rows = 1, .one_of = 1},
    GRAD(DKV_FP32) = {SMELT__TENSOR(dkv_fp32, FP32, OUTPUT, B, S, DQK), .whole_rows = 1,
                      .one_of = 1},
    GRAD(DKV_SUM) = {SMELT__TENSOR(dkv_sum, FP32, ACCUMULATED, B, S, DQK), .whole_rows = 1,
                     .one_of = 1},
    GRAD(DSINK) = {SMELT__TENSOR(dsink, FP32, OUTPUT, H), .key = "sink", .optional = 1},
};

const struct smelt__args_table smelt__sparse_attn_grad_table = {
    SMELT__ARGS("SMELT_SPARSE_ATTN_GRAD_ARGS_INIT", workspace_limit, grad_symbols, grad_scalars,
                grad_rows),
    SMELT__WORKSPACE(SMELT__BACKWARD_ALIGNMENT),
};
