/* What the host needs to know of the kernels of indexer_quantize. */
#ifndef SMELT_CODEGEN_INDEXER_QUANTIZE_H
#define SMELT_CODEGEN_INDEXER_QUANTIZE_H

#include "codegen/family.h"

/* Rows of an item of the grid. */
int smelt__indexer_quantize_block_rows(int dim);

#endif
