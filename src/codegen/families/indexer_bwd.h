/* The operator indexer_bwd. */
#pragma once

#include "codegen/family.h"

/* The operator's kernels in the order of its expansion; without `deterministic`, the four of the
 * grains are left out. */
enum smelt__indexer_bwd_kernel {
    SMELT__INDEXER_BWD_LISTS,
    SMELT__INDEXER_BWD_REACH,
    SMELT__INDEXER_BWD_BOUNDS,
    SMELT__INDEXER_BWD_GRAINS,
    SMELT__INDEXER_BWD_TOTALS,
    SMELT__INDEXER_BWD_MAIN,
    SMELT__INDEXER_BWD_FINISH
};
