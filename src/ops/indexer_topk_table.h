/* The arguments of the operator indexer_topk as a table (args_table.h); smelt/indexer_topk.h has their meaning. */
#ifndef SMELT_OPS_INDEXER_TOPK_TABLE_H
#define SMELT_OPS_INDEXER_TOPK_TABLE_H

#include "ops/args_table.h"

/* Extents by number. */
enum smelt__indexer_topk_symbol {
    SMELT__INDEXER_TOPK_T,
    SMELT__INDEXER_TOPK_S,
    SMELT__INDEXER_TOPK_H,
    SMELT__INDEXER_TOPK_D,
    SMELT__INDEXER_TOPK_K,
    SMELT__INDEXER_TOPK_SYMBOLS
};

/* Rows by number. */
enum smelt__indexer_topk_tensor {
    SMELT__INDEXER_TOPK_QUERY,
    SMELT__INDEXER_TOPK_KEY,
    SMELT__INDEXER_TOPK_WEIGHTS,
    SMELT__INDEXER_TOPK_KEY_SCALE, /* optional: there with fp8 */
    SMELT__INDEXER_TOPK_WINDOW_BEGIN,
    SMELT__INDEXER_TOPK_WINDOW_END,
    SMELT__INDEXER_TOPK_OFFSET,
    SMELT__INDEXER_TOPK_INDICES,
    SMELT__INDEXER_TOPK_VALUES,
    SMELT__INDEXER_TOPK_LENGTHS,
    SMELT__INDEXER_TOPK_TENSORS
};

/* A table for each element type of q and k, by enum smelt_indexer_dtype. */
extern const struct smelt__args_table smelt__indexer_topk_table[2];

#endif
