/* The arguments of the operator indexer_quantize as a table (args_table.h); smelt/indexer_quantize.h has their meaning. */
#ifndef SMELT_OPS_INDEXER_QUANTIZE_TABLE_H
#define SMELT_OPS_INDEXER_QUANTIZE_TABLE_H

#include "ops/args_table.h"

/* Extents by number. */
enum smelt__indexer_quantize_symbol {
    SMELT__INDEXER_QUANTIZE_N,
    SMELT__INDEXER_QUANTIZE_D,
    SMELT__INDEXER_QUANTIZE_SYMBOLS
};

/* Rows by number. */
enum smelt__indexer_quantize_tensor {
    SMELT__INDEXER_QUANTIZE_X,
    SMELT__INDEXER_QUANTIZE_Y,
    SMELT__INDEXER_QUANTIZE_SCALE,
    SMELT__INDEXER_QUANTIZE_FACTOR,
    SMELT__INDEXER_QUANTIZE_TENSORS
};

extern const struct smelt__args_table smelt__indexer_quantize_table;

#endif
