/* indexer_topk's own groups of cases. */
#pragma once

#include "suite.h"

void run_two_steps(struct suite *suite); /* the same bits as logits, then top-k, in any chunks */
void run_choosing_chain(struct suite *suite); /* with the operators before and after it, in a
                                                 graph */
void run_without_keys(struct suite *suite);   /* indices of -1 */
