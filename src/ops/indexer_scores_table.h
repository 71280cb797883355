/* The arguments of the operator indexer_scores as a table (args_table.h); smelt/indexer_scores.h has their meaning. */
#ifndef SMELT_OPS_INDEXER_SCORES_TABLE_H
#define SMELT_OPS_INDEXER_SCORES_TABLE_H

#include "ops/args_table.h"

/* Extents by number. */
enum smelt__indexer_scores_symbol {
    SMELT__INDEXER_SCORES_T,
    SMELT__INDEXER_SCORES_S,
    SMELT__INDEXER_SCORES_H,
    SMELT__INDEXER_SCORES_D,
    SMELT__INDEXER_SCORES_WIDTH,
    SMELT__INDEXER_SCORES_ONE,
    SMELT__INDEXER_SCORES_SYMBOLS
};

/* Rows by number. */
enum smelt__indexer_scores_tensor {
    SMELT__INDEXER_SCORES_Q,
    SMELT__INDEXER_SCORES_K,
    SMELT__INDEXER_SCORES_WEIGHTS,
    SMELT__INDEXER_SCORES_INDICES,
    SMELT__INDEXER_SCORES_TOPK_LENGTH, /* optional */
    SMELT__INDEXER_SCORES_LOGITS,
    SMELT__INDEXER_SCORES_TENSORS
};

extern const struct smelt__args_table smelt__indexer_scores_table;

#endif
