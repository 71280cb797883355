/* What trains the lightning indexer: the tables of its operators. T tokens, S keys (rows), H heads,
 * D their width, W slots of an index row. */
#include "operators.h"

/* ---- sparse_scores ----------------------------------------------------------------------------
 * As sparse_attn's: B batches, Q width of a query and of a KV row, N entries of a query list. */

#define ARGS smelt_sparse_scores_args

static const struct tensor_argument sparse_scores_tensors[] = {
    ATTENTION_INPUTS,
    TENSOR(lse, "BTH1", FP32, 0),
    TENSOR(target, "BTW", FP32, OUTPUT),
};
static const struct scalar_argument sparse_scores_scalars[] = {SCALAR(scale, FLOAT),
                                                               SCALAR(free_multiprocessors, INT)};
static const struct extent_argument sparse_scores_extents[] = {
    ATTENTION_EXTENTS,
};

NOTE(sparse_scores, FIX('H', heads) FIX('Q', dqk))

OPERATOR(sparse_scores, SPARSE_SCORES);
#undef ARGS

/* ---- indexer_loss ---------------------------------------------------------------------------- */

#define ARGS smelt_indexer_loss_args

static const struct tensor_argument indexer_loss_tensors[] = {
    TENSOR(logits, "TW", FP32, 0),
    TENSOR(target, "TW", FP32, 0),
    TENSOR(indices, "TW", INT32, 0),
    TENSOR(topk_length, "T1", INT32, OPTIONAL),
    TENSOR(weight, "T", FP32, OPTIONAL),
    TENSOR(grad_loss, "", FP32, OPTIONAL),
    TENSOR(loss, "", FP32, OUTPUT),
    TENSOR(losses, "T", FP32, OPTIONAL | OUTPUT),
    TENSOR(grad, "TW", FP32, OPTIONAL | OUTPUT),
};
static const struct scalar_argument indexer_loss_scalars[] = {
    SCALAR(rows, LONG), SCALAR(query_weight, FLOAT), SCALAR(free_multiprocessors, INT)};
static const struct extent_argument indexer_loss_extents[] = {EXTENT('T', tokens),
                                                              EXTENT('W', width)};

NOTE(indexer_loss, )

OPERATOR_WITH_WORKSPACE(indexer_loss, INDEXER_LOSS, smelt_indexer_loss_forward);
#undef ARGS

/* ---- indexer_scores -------------------------------------------------------------------------- */

#define ARGS smelt_indexer_scores_args

static const struct tensor_argument indexer_scores_tensors[] = {
    TENSOR(q, "THD", BF16, ROWS),
    TENSOR(k, "SD", BF16, ROWS),
    TENSOR(weights, "TH", FP32, 0),
    TENSOR(indices, "TW", INT32, 0),
    TENSOR(topk_length, "T1", INT32, OPTIONAL),
    TENSOR(logits, "TW", FP32, OUTPUT),
};
static const struct scalar_argument indexer_scores_scalars[] = {SCALAR(free_multiprocessors, INT)};
static const struct extent_argument indexer_scores_extents[] = {
    EXTENT('T', tokens), EXTENT('S', rows), EXTENT('W', width)};

NOTE(indexer_scores, FIX('H', heads) FIX('D', dim))

OPERATOR(indexer_scores, INDEXER_SCORES);
#undef ARGS

/* ---- indexer_bwd ----------------------------------------------------------------------------- */

#define ARGS smelt_indexer_bwd_args

static const struct tensor_argument indexer_bwd_tensors[] = {
    TENSOR(q, "THD", BF16, ROWS),
    TENSOR(k, "SD", BF16, ROWS),
    TENSOR(weights, "TH", FP32, 0),
    TENSOR(indices, "TW", INT32, 0),
    TENSOR(topk_length, "T", INT32, OPTIONAL),
    TENSOR(grad, "TW", FP32, 0),
    TENSOR(dq, "THD", BF16, ROWS | OUTPUT),
    TENSOR(dweights, "TH", FP32, OUTPUT),
    TENSOR(dk, "SD", BF16, ROWS | OPTIONAL | OUTPUT),
    TENSOR(dk_fp32, "SD", FP32, ROWS | OPTIONAL | OUTPUT),
    TENSOR(dk_sum, "SD", FP32, ROWS | OPTIONAL | WRITTEN),
};
static const struct scalar_argument indexer_bwd_scalars[] = {SCALAR(free_multiprocessors, INT)};
static const struct extent_argument indexer_bwd_extents[] = {EXTENT('T', tokens), EXTENT('S', rows),
                                                             EXTENT('W', width)};

NOTE(indexer_bwd, FIX('H', heads) FIX('D', dim))

OPERATOR_WITH_WORKSPACE(indexer_bwd, INDEXER_BWD, smelt_indexer_bwd_backward);
#undef ARGS
