/* What the operator indexer_topk and its call agree on. */
#pragma once

#include "codegen/family.h"

/* Its kernels by number: the logits', then those of the selection in their own order. */
enum { SMELT__INDEXER_TOPK_LOGITS = 0, SMELT__INDEXER_TOPK_SELECT };
