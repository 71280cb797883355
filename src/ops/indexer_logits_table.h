/* The arguments of the operator indexer_logits as a table (args_table.h); smelt/indexer_logits.h has their meaning. */
#ifndef SMELT_OPS_INDEXER_LOGITS_TABLE_H
#define SMELT_OPS_INDEXER_LOGITS_TABLE_H

#include "ops/args_table.h"

/* Extents by number. */
enum smelt__indexer_logits_symbol {
    SMELT__INDEXER_LOGITS_T,
    SMELT__INDEXER_LOGITS_S,
    SMELT__INDEXER_LOGITS_H,
    SMELT__INDEXER_LOGITS_D,
    SMELT__INDEXER_LOGITS_SYMBOLS
};

/* Rows by number. */
enum smelt__indexer_logits_tensor {
    SMELT__INDEXER_LOGITS_Q,
    SMELT__INDEXER_LOGITS_K,
    SMELT__INDEXER_LOGITS_WEIGHTS,
    SMELT__INDEXER_LOGITS_K_SCALE, /* optional: there with fp8 */
    SMELT__INDEXER_LOGITS_WINDOW_BEGIN,
    SMELT__INDEXER_LOGITS_WINDOW_END,
    SMELT__INDEXER_LOGITS_LOGITS,
    SMELT__INDEXER_LOGITS_TENSORS
};

/* A table for each element type of q and k, by enum smelt_indexer_dtype. */
extern const struct smelt__args_table smelt__indexer_logits_table[2];

#endif
