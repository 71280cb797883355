/* The groups of cases that indexer_topk alone has. */
#pragma once

#include "suite.h"

void run_two_steps(struct suite *suite); /* the same bits as logits, then top-k, in any chunks */
void run_choosing_chain(struct suite *suite); /* with what comes before and behind it, in a graph */
void run_without_keys(struct suite *suite);   /* indices of -1 */
