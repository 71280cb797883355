/* The arguments of the operator indexer_bwd as a table (args_table.h); smelt/indexer_bwd.h has their meaning. */
#ifndef SMELT_OPS_INDEXER_BWD_TABLE_H
#define SMELT_OPS_INDEXER_BWD_TABLE_H

#include "ops/args_table.h"

/* Extents by number. */
enum smelt__indexer_bwd_symbol {
    SMELT__INDEXER_BWD_T,
    SMELT__INDEXER_BWD_S,
    SMELT__INDEXER_BWD_H,
    SMELT__INDEXER_BWD_D,
    SMELT__INDEXER_BWD_WIDTH,
    SMELT__INDEXER_BWD_ONE,
    SMELT__INDEXER_BWD_SYMBOLS
};

/* Rows by number. */
enum smelt__indexer_bwd_tensor {
    SMELT__INDEXER_BWD_Q,
    SMELT__INDEXER_BWD_K,
    SMELT__INDEXER_BWD_WEIGHTS,
    SMELT__INDEXER_BWD_INDICES,
    SMELT__INDEXER_BWD_TOPK_LENGTH,
    SMELT__INDEXER_BWD_GRAD,
    SMELT__INDEXER_BWD_DQ,
    SMELT__INDEXER_BWD_DWEIGHTS,
    SMELT__INDEXER_BWD_DK, /* of these three one is given */
    SMELT__INDEXER_BWD_DK_FP32,
    SMELT__INDEXER_BWD_DK_SUM,
    SMELT__INDEXER_BWD_TENSORS
};

extern const struct smelt__args_table smelt__indexer_bwd_table;

#endif
