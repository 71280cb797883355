/* The compile matrix's cells of indexer_windows: one kernel, which the presets name. */
#include <stddef.h>

#include "cells.h"

static const char *const none[] = {NULL};

const struct compile_cells compile_cells_indexer_windows = {
    .operators = none, .tuned = none, .kernels = none};
