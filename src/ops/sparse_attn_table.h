/* The arguments of the operator sparse_attn as tables (args_table.h); smelt/sparse_attn.h has their
 * meaning. */
#ifndef SMELT_OPS_SPARSE_ATTN_TABLE_H
#define SMELT_OPS_SPARSE_ATTN_TABLE_H

#include "ops/args_table.h"

/* Extents by number. */
enum smelt__sparse_attn_symbol {
    SMELT__SPARSE_ATTN_B,
    SMELT__SPARSE_ATTN_T,
    SMELT__SPARSE_ATTN_S,
    SMELT__SPARSE_ATTN_H,
    SMELT__SPARSE_ATTN_DQK,
    SMELT__SPARSE_ATTN_DV,
    SMELT__SPARSE_ATTN_WIDTH,
    SMELT__SPARSE_ATTN_LISTED, /* query_capacity */
    SMELT__SPARSE_ATTN_ONE,
    SMELT__SPARSE_ATTN_SYMBOLS
};

/* Rows by number. */
enum smelt__sparse_attn_tensor {
    SMELT__SPARSE_ATTN_Q,
    SMELT__SPARSE_ATTN_KV,
    SMELT__SPARSE_ATTN_INDICES,
    SMELT__SPARSE_ATTN_TOPK_LENGTH,
    SMELT__SPARSE_ATTN_SINK,
    SMELT__SPARSE_ATTN_QUERIES,
    SMELT__SPARSE_ATTN_QUERY_COUNT,
    SMELT__SPARSE_ATTN_OUT,
    SMELT__SPARSE_ATTN_LSE,
    SMELT__SPARSE_ATTN_MAX_LOGITS,
    SMELT__SPARSE_ATTN_TENSORS
};

/* Rows of the backward pass by number. */
enum smelt__sparse_attn_grad_tensor {
    SMELT__SPARSE_ATTN_GRAD_Q,
    SMELT__SPARSE_ATTN_GRAD_KV,
    SMELT__SPARSE_ATTN_GRAD_INDICES,
    SMELT__SPARSE_ATTN_GRAD_TOPK_LENGTH,
    SMELT__SPARSE_ATTN_GRAD_SINK,
    SMELT__SPARSE_ATTN_GRAD_QUERIES,
    SMELT__SPARSE_ATTN_GRAD_QUERY_COUNT,
    SMELT__SPARSE_ATTN_GRAD_OUT,
    SMELT__SPARSE_ATTN_GRAD_LSE,
    SMELT__SPARSE_ATTN_GRAD_GRAD_OUT,
    SMELT__SPARSE_ATTN_GRAD_DQ,
    SMELT__SPARSE_ATTN_GRAD_DKV,
    SMELT__SPARSE_ATTN_GRAD_DKV_FP32,
    SMELT__SPARSE_ATTN_GRAD_DKV_SUM,
    SMELT__SPARSE_ATTN_GRAD_DSINK,
    SMELT__SPARSE_ATTN_GRAD_TENSORS
};

/* Of an args struct ARGS that has sparse_attn's numbers: sparse_scores' has, too. */
#define SMELT__SPARSE_ATTN_EXTENTS                                                                 \
    {                                                                                              \
        [SMELT__SPARSE_ATTN_B] = SMELT__BY_ARGS("B", "batch", batches),                            \
        [SMELT__SPARSE_ATTN_T] = SMELT__BY_ARGS("T", "token", tokens),                             \
        [SMELT__SPARSE_ATTN_S] = SMELT__BY_ARGS("S", "row", rows),                                 \
        [SMELT__SPARSE_ATTN_H] = SMELT__BY_KEY("H", "head", "heads"),                              \
        [SMELT__SPARSE_ATTN_DQK] = SMELT__BY_KEY("dqk", "element", "dqk"),                         \
        [SMELT__SPARSE_ATTN_DV] = SMELT__BY_KEY("dv", "element", "dv"),                            \
        [SMELT__SPARSE_ATTN_WIDTH] = SMELT__BY_ARGS("width", "slot", width),                       \
        [SMELT__SPARSE_ATTN_LISTED] = SMELT__BY_ARGS("query_capacity", "entry", query_capacity),   \
        [SMELT__SPARSE_ATTN_ONE] = SMELT__ONE_ELEMENT,                                             \
    }
#define SMELT__SPARSE_ATTN_NUMBERS                                                                 \
    {SMELT__SCALAR(batches, INT64, 0, INT32_MAX), .zero = 1},                                      \
        {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)}, {SMELT__SCALAR(rows, INT64, 0, INT32_MAX)},  \
        {SMELT__SCALAR(width, INT64, 1, SMELT__PARTITION_MOST_SLOTS), .most_key = "topk",          \
         .unless = "buckets"},                                                                     \
        {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},                                  \
        {SMELT__SCALAR(query_capacity, INT64, 0, INT32_MAX)}, {                                    \
        SMELT__SCALAR(scale, FLOAT, 0, 0)                                                          \
    }

/* Of smelt_sparse_attn_args, and of smelt_sparse_attn_grad_args; the extents are the same. */
extern const struct smelt__args_table smelt__sparse_attn_table;
extern const struct smelt__args_table smelt__sparse_attn_grad_table;

#endif
