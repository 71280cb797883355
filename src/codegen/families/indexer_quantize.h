/* What the host needs to know of the kernels of indexer_quantize. */
#pragma once

#include "codegen/family.h"

/* Rows of an item of the grid. */
int smelt__indexer_quantize_block_rows(int dim);
