/* smelt: all public headers. Each also works alone. */
#ifndef SMELT_SMELT_H
#define SMELT_SMELT_H

#include "smelt/cache.h"
#include "smelt/context.h"
#include "smelt/device.h"
#include "smelt/indexer_bwd.h"
#include "smelt/indexer_clean.h"
#include "smelt/indexer_logits.h"
#include "smelt/indexer_loss.h"
#include "smelt/indexer_quantize.h"
#include "smelt/indexer_scores.h"
#include "smelt/indexer_topk.h"
#include "smelt/indexer_windows.h"
#include "smelt/kernels.h"
#include "smelt/operator.h"
#include "smelt/sparse_attn.h"
#include "smelt/sparse_scores.h"
#include "smelt/status.h"
#include "smelt/struct.h"
#include "smelt/tensor.h"
#include "smelt/topk_select.h"
#include "smelt/tuning.h"

#endif
