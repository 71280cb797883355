/* The groups of cases that indexer_bwd alone has, beside those in its own file. */
#ifndef SMELT_TEST_GPU_INDEXER_BWD_GROUPS_H
#define SMELT_TEST_GPU_INDEXER_BWD_GROUPS_H

#include "suite.h"

void run_indexer_bwd_nonfinite(struct suite *suite); /* NaN and infinity */

#endif
