/* What the operator indexer_clean and its kernel family agree on. */
#ifndef SMELT_CODEGEN_INDEXER_CLEAN_H
#define SMELT_CODEGEN_INDEXER_CLEAN_H

#include "codegen/family.h"

extern const struct smelt__operator_family smelt__indexer_clean;
extern const struct smelt__kernel_family smelt__indexer_clean_fill;

enum { SMELT__INDEXER_CLEAN_KEYS = 8192 }; /* of an item of the grid */

#endif
