/* The step that trains the indexer, all of its operators in one graph: a group of the GPU suite. */
#ifndef SMELT_TEST_GPU_TRAINING_CHAIN_H
#define SMELT_TEST_GPU_TRAINING_CHAIN_H

#include "suite.h"

void run_training_chain(struct suite *suite);

#endif
