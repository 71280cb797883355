/* The kernel family indexer_bwd_lists, for the operator. */
#ifndef SMELT_CODEGEN_INDEXER_BWD_LISTS_H
#define SMELT_CODEGEN_INDEXER_BWD_LISTS_H

#include "codegen/family.h"

extern const struct smelt__kernel_family smelt__indexer_bwd_lists;

#endif
