/* The tensors of the operator indexer_bwd: see tensors.h, and smelt/indexer_bwd.h for their
 * meaning. */
#ifndef SMELT_OPS_INDEXER_BWD_TENSORS_H
#define SMELT_OPS_INDEXER_BWD_TENSORS_H

#include "ops/tensors.h"

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
    SMELT__INDEXER_BWD_IQ,
    SMELT__INDEXER_BWD_IK,
    SMELT__INDEXER_BWD_W,
    SMELT__INDEXER_BWD_INDICES,
    SMELT__INDEXER_BWD_TOPK_LENGTH,
    SMELT__INDEXER_BWD_GRAD,
    SMELT__INDEXER_BWD_DIQ,
    SMELT__INDEXER_BWD_DW,
    SMELT__INDEXER_BWD_DIK, /* of these three one is given */
    SMELT__INDEXER_BWD_DIK_FP32,
    SMELT__INDEXER_BWD_DIK_SUM,
    SMELT__INDEXER_BWD_TENSORS
};

extern const struct smelt__tensor_table smelt__indexer_bwd_tensors;

#endif
