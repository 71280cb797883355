/* The arguments of the operator sparse_scores as a table (args_table.h); smelt/sparse_scores.h has their meaning. */
#ifndef SMELT_OPS_SPARSE_SCORES_TABLE_H
#define SMELT_OPS_SPARSE_SCORES_TABLE_H

#include "ops/args_table.h"
#include "ops/sparse_attn_table.h"

/* Rows by number; what sparse_attn reads, too, has its numbers. */
enum smelt__sparse_scores_tensor {
    SMELT__SPARSE_SCORES_Q = SMELT__SPARSE_ATTN_Q,
    SMELT__SPARSE_SCORES_KV = SMELT__SPARSE_ATTN_KV,
    SMELT__SPARSE_SCORES_INDICES = SMELT__SPARSE_ATTN_INDICES,
    SMELT__SPARSE_SCORES_TOPK_LENGTH = SMELT__SPARSE_ATTN_TOPK_LENGTH,
    SMELT__SPARSE_SCORES_SINK = SMELT__SPARSE_ATTN_SINK,
    SMELT__SPARSE_SCORES_QUERIES = SMELT__SPARSE_ATTN_QUERIES,
    SMELT__SPARSE_SCORES_QUERY_COUNT = SMELT__SPARSE_ATTN_QUERY_COUNT,
    SMELT__SPARSE_SCORES_LSE,
    SMELT__SPARSE_SCORES_TARGET,
    SMELT__SPARSE_SCORES_TENSORS
};

extern const struct smelt__args_table smelt__sparse_scores_table;

#endif
