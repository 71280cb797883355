/*
 * smelt: the operators, each with its own header. This is the one list of them: the build derives
 * every registry from it, in this order.
 */
#ifndef SMELT_OPERATORS_H
#define SMELT_OPERATORS_H

/* clang-format off */
#include "smelt/sparse_attn.h"
#include "smelt/indexer_windows.h"
#include "smelt/quantize.h"
#include "smelt/indexer_logits.h"
#include "smelt/indexer_clean.h"
#include "smelt/topk_select.h"
#include "smelt/indexer_topk.h"
#include "smelt/indexer_loss.h"
#include "smelt/indexer_scores.h"
#include "smelt/indexer_bwd.h"
#include "smelt/sparse_scores.h"
#include "smelt/sparse_gqa.h"
#include "smelt/sparse_gqa_scores.h"
#include "smelt/dense_lse.h"
#include "smelt/indexer_dense_loss.h"
/* clang-format on */

#endif
