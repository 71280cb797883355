/* Groups of cases of the operators that train the indexer, in addition to those in each operator's
 * file. */
#pragma once

#include "suite.h"

void run_indexer_bwd_exact(struct suite *suite); /* sums without rounding */

/* No queries, no rows. */
void run_indexer_bwd_boundaries(struct suite *suite);
void run_indexer_scores_boundaries(struct suite *suite);
void run_sparse_scores_boundaries(struct suite *suite);
