/* What the operator indexer_dense_loss and its calls agree on. */
#pragma once

#include "codegen/families/indexer_keys.h"
#include "codegen/family.h"

/* Rows of a table of keys: what the loss is taken over, where that is not single keys. */
#define SMELT__DENSE_SLOTS                                                                         \
    {SMELT__OPTIONAL("granularity",                                                                \
                     "attention's keys of a pool, which is a key of the indexer's"),               \
     SMELT__INDEXER_GRANULES, .default_value = 1},                                                 \
    {                                                                                              \
        SMELT__OPTIONAL("block_max", "keys of a block, whose largest logit counts"),               \
            SMELT__INDEXER_GRANULES, .default_value = 1                                            \
    }

/* The roles of its kernels (struct smelt__expansion). From BACKWARD on: those of indexer_bwd, from its REACH
 * on. */
enum smelt__indexer_dense_loss_kernel {
    SMELT__INDEXER_DENSE_WINDOWS, /* where there are pools */
    SMELT__INDEXER_DENSE_LOGITS,
    SMELT__INDEXER_DENSE_SCORES,
    SMELT__INDEXER_DENSE_ROWS,
    SMELT__INDEXER_DENSE_SUM,
    SMELT__INDEXER_DENSE_BACKWARD
};
