/* What the operator indexer_quantize and its kernel family agree on. */
#ifndef SMELT_CODEGEN_INDEXER_QUANTIZE_H
#define SMELT_CODEGEN_INDEXER_QUANTIZE_H

#include "codegen/families/indexer_keys.h"
#include "codegen/family.h"

extern const struct smelt__operator_family smelt__indexer_quantize;
extern const struct smelt__kernel_family smelt__indexer_quantize_rows;

extern const char *const smelt__quantize_scales[];

/* Rows of the operator's and the kernel's tables of keys. */
#define SMELT__QUANTIZE_KEYS                                                                       \
    SMELT__INDEXER_DIM, SMELT__NAMED("scale", "plain, power_of_two",                               \
                                     "what a row's scale is: any number, or a power of two",       \
                                     smelt__quantize_scales, 0)

/* Rows of an item of the grid. */
int smelt__indexer_quantize_block_rows(int dim);

#endif
