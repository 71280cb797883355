/* What the operator indexer_topk and its call agree on. */
#ifndef SMELT_CODEGEN_INDEXER_TOPK_H
#define SMELT_CODEGEN_INDEXER_TOPK_H

#include "codegen/family.h"

/* Its kernels by number: the logits', then those of the selection in their own order. */
enum { SMELT__INDEXER_TOPK_LOGITS = 0, SMELT__INDEXER_TOPK_SELECT };

#endif
