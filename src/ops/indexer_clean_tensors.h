/* The tensors of the operator indexer_clean: see tensors.h, and smelt/indexer_clean.h for their
 * meaning. */
#ifndef SMELT_OPS_INDEXER_CLEAN_TENSORS_H
#define SMELT_OPS_INDEXER_CLEAN_TENSORS_H

#include "ops/tensors.h"

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

extern const struct smelt__tensor_table smelt__indexer_clean_tensors;

#endif
