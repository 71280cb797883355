/* The step that trains the indexer, all of its operators in one graph: a group of the GPU suite. */
#pragma once

#include "suite.h"

void run_training_chain(struct suite *suite);
