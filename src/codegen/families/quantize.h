/* What the host needs to know of the kernels of quantize. */
#pragma once

#include "codegen/family.h"

/* Groups of an item of the grid. */
int smelt__quantize_block_groups(int dim, int groups);
