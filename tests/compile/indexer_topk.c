/* The compile matrix's cells of indexer_topk, whose kernels are those of indexer_logits and
 * topk_select: the presets' are all there is to add. */
#include <stddef.h>

#include "cells.h"

static const char *const none[] = {NULL};

const struct compile_cells compile_cells_indexer_topk = {
    .operators = none, .tuned = none, .kernels = none};
