/* What the operator indexer_dense_loss and its calls agree on. */
#pragma once

#include "codegen/family.h"

/* Its kernels by number; from BACKWARD on those of indexer_bwd but the lists, in its order
 * (enum smelt__indexer_bwd_kernel). */
enum smelt__indexer_dense_loss_kernel {
    SMELT__INDEXER_DENSE_LOGITS,
    SMELT__INDEXER_DENSE_SCORES,
    SMELT__INDEXER_DENSE_ROWS,
    SMELT__INDEXER_DENSE_SUM,
    SMELT__INDEXER_DENSE_BACKWARD
};
