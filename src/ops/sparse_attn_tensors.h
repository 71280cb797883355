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

extern const struct smelt__tensor_table smelt__sparse_attn_tensors;

#endif
