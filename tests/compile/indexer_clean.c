/* The compile matrix's cells of indexer_clean: one kernel. */
#include <stddef.h>

#include "cells.h"

static const char *const none[] = {NULL};
static const char *const operators[] = {"indexer_clean", NULL};

const struct compile_cells compile_cells_indexer_clean = {
    .operators = operators, .tuned = none, .kernels = none};
