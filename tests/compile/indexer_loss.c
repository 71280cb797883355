/* The compile matrix's cells of indexer_loss: odd widths, the models', rows in one part and in
 * several, and each number of vectors. */
#include <stddef.h>

#include "cells.h"

static const char *const operators[] = {"indexer_loss:topk=1",
                                        "indexer_loss:topk=512",
                                        "indexer_loss:topk=1152",
                                        "indexer_loss:topk=2048",
                                        "indexer_loss:topk=16384",
                                        "indexer_loss:topk=100001",
                                        NULL};
static const char *const tuned[] = {"indexer_loss_rows:topk=2048", NULL};
static const char *const kernels[] = {"indexer_loss_rows:topk=4096,vectors=1",
                                      "indexer_loss_rows:topk=4096,vectors=4",
                                      "indexer_loss_rows:topk=2048,blocks=5", NULL};

const struct compile_cells compile_cells_indexer_loss = {
    .operators = operators, .tuned = tuned, .kernels = kernels};
