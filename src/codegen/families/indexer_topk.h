/* What the operator indexer_topk and its call agree on. */
#pragma once

#include "codegen/families/topk_select_rows.h"

/* Its kernels by number: the logits', then those of the selection in their own order, then those of
 * the selection of published blocks, if there is one. */
enum { SMELT__INDEXER_TOPK_LOGITS = 0, SMELT__INDEXER_TOPK_SELECT };

/* How many kernels a selection has. */
int smelt__indexer_topk_selections(const struct smelt__spec *spec);
