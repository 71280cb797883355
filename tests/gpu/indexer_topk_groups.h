/* The groups of cases that indexer_topk alone has. */
#ifndef SMELT_TEST_GPU_INDEXER_TOPK_GROUPS_H
#define SMELT_TEST_GPU_INDEXER_TOPK_GROUPS_H

#include "suite.h"

void run_two_steps(struct suite *suite); /* the same bits as logits, then top-k, in any chunks */
void run_choosing_chain(struct suite *suite); /* with what comes before and behind it, in a graph */
void run_without_keys(struct suite *suite);   /* indices of -1 */

#endif
