/* What indexer_logits, indexer_clean and indexer_quantize must refuse: a group of the GPU suite. */
#ifndef SMELT_TEST_GPU_INDEXER_ARGUMENTS_H
#define SMELT_TEST_GPU_INDEXER_ARGUMENTS_H

#include "suite.h"

void run_indexer_arguments(struct suite *suite);

#endif
