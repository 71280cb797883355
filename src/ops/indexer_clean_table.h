/* The arguments of the operator indexer_clean as a table (args_table.h); smelt/indexer_clean.h has their meaning. */
#ifndef SMELT_OPS_INDEXER_CLEAN_TABLE_H
#define SMELT_OPS_INDEXER_CLEAN_TABLE_H

#include "ops/args_table.h"

/* Extents by number. */
enum smelt__indexer_clean_symbol {
    SMELT__INDEXER_CLEAN_T,
    SMELT__INDEXER_CLEAN_S,
    SMELT__INDEXER_CLEAN_SYMBOLS
};

/* Rows by number. */
enum smelt__indexer_clean_tensor {
    SMELT__INDEXER_CLEAN_WINDOW_BEGIN,
    SMELT__INDEXER_CLEAN_WINDOW_END,
    SMELT__INDEXER_CLEAN_LOGITS,
    SMELT__INDEXER_CLEAN_TENSORS
};

extern const struct smelt__args_table smelt__indexer_clean_table;

#endif
