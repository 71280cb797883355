/* The operator indexer_bwd. */
#ifndef SMELT_CODEGEN_INDEXER_BWD_H
#define SMELT_CODEGEN_INDEXER_BWD_H

#include "codegen/family.h"

extern const struct smelt__family smelt__indexer_bwd;

/* The operator's kernels by their place in its expansion: with deterministic=1, and without. */
enum smelt__indexer_bwd_kernel {
    SMELT__INDEXER_BWD_GROUP,
    SMELT__INDEXER_BWD_COUNT, /* this and the next two, and the sum, in deterministic mode alone */
    SMELT__INDEXER_BWD_SCAN,
    SMELT__INDEXER_BWD_PLACE,
    SMELT__INDEXER_BWD_MAIN,
    SMELT__INDEXER_BWD_SUM,
    SMELT__INDEXER_BWD_FINISH
};

#endif
