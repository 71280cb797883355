/* The arguments of the operator indexer_loss as a table (args_table.h); smelt/indexer_loss.h has their meaning. */
#ifndef SMELT_OPS_INDEXER_LOSS_TABLE_H
#define SMELT_OPS_INDEXER_LOSS_TABLE_H

#include "ops/args_table.h"

/* Extents by number. */
enum smelt__indexer_loss_symbol {
    SMELT__INDEXER_LOSS_T,
    SMELT__INDEXER_LOSS_WIDTH,
    SMELT__INDEXER_LOSS_ONE,
    SMELT__INDEXER_LOSS_SYMBOLS
};

/* Rows by number. */
enum smelt__indexer_loss_tensor {
    SMELT__INDEXER_LOSS_LOGITS,
    SMELT__INDEXER_LOSS_TARGET,
    SMELT__INDEXER_LOSS_INDICES,
    SMELT__INDEXER_LOSS_TOPK_LENGTH,
    SMELT__INDEXER_LOSS_WEIGHT,
    SMELT__INDEXER_LOSS_GRAD_LOSS,
    SMELT__INDEXER_LOSS_LOSS,
    SMELT__INDEXER_LOSS_LOSSES,
    SMELT__INDEXER_LOSS_GRAD,
    SMELT__INDEXER_LOSS_TENSORS
};

extern const struct smelt__args_table smelt__indexer_loss_table;

#endif
