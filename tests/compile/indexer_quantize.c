/* The compile matrix's cells of indexer_quantize: both widths with both scales. */
#include <stddef.h>

#include "cells.h"

static const char *const operators[] = {"indexer_quantize:dim=128", "indexer_quantize:dim=64",
                                        "indexer_quantize:dim=128,scale=power_of_two",
                                        "indexer_quantize:dim=64,scale=power_of_two", NULL};

const struct compile_cells compile_cells_indexer_quantize = {.operators = operators};
