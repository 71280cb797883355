/* A group of the GPU suite: a training step of the indexer with all operators in one graph. */
#pragma once

#include "suite.h"

void run_training_chain(struct suite *suite);
