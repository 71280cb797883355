/* What the operator indexer_loss and its kernel families agree on. */
#pragma once

#include "codegen/family.h"

extern const struct smelt__kernel_family smelt__indexer_loss_rows;
extern const struct smelt__kernel_family smelt__indexer_loss_sum;

/* The row of the operator's and the kernel's tables of keys. */
#define SMELT__INDEXER_LOSS_TOPK                                                                   \
    { SMELT__REQUIRED("topk", "the most slots of a query"), SMELT__RANGE(1, 1048576) }
