/* The operator indexer_bwd. */
#pragma once

#include "codegen/family.h"

/* The roles of the operator's kernels (struct smelt__expansion), in the order of launch. REACH, BOUNDS,
 * GRAINS and TOTALS, passes of key_grads_grains, exist only with `deterministic`. */
enum smelt__indexer_bwd_kernel {
    SMELT__INDEXER_BWD_LISTS,
    SMELT__INDEXER_BWD_REACH,
    SMELT__INDEXER_BWD_BOUNDS,
    SMELT__INDEXER_BWD_GRAINS,
    SMELT__INDEXER_BWD_MAIN,
    SMELT__INDEXER_BWD_TOTALS,
    SMELT__INDEXER_BWD_FINISH
};
