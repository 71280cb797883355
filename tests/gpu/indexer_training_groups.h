/* The groups of cases that what trains the indexer has beside those in each operator's own file. */
#pragma once

#include "suite.h"

void run_indexer_bwd_nonfinite(struct suite *suite); /* NaN and infinity */

/* No queries, no rows. */
void run_indexer_bwd_boundaries(struct suite *suite);
void run_indexer_scores_boundaries(struct suite *suite);
void run_sparse_scores_boundaries(struct suite *suite);
