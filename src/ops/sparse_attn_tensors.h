/* The tensors of the operator sparse_attn: see tensors.h, and smelt/sparse_attn.h for their
 * meaning. */
#ifndef SMELT_OPS_SPARSE_ATTN_TENSORS_H
#define SMELT_OPS_SPARSE_ATTN_TENSORS_H

#include "ops/tensors.h"

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

/* What the extents are called. */
extern const struct smelt__symbol smelt__sparse_attn_symbols[SMELT__SPARSE_ATTN_SYMBOLS];

/* Of smelt_sparse_attn_args, and of smelt_sparse_attn_grad_args; the extents are the same. */
extern const struct smelt__tensor_table smelt__sparse_attn_tensors;
extern const struct smelt__tensor_table smelt__sparse_attn_grad_tensors;

#endif
