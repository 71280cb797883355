/* What trains the lightning indexer: the tables of its operators. T tokens, S keys (rows), H heads,
 * D their width, W slots of an index row. */
#include "operators.h"

/* ---- sparse_scores ----------------------------------------------------------------------------
 * As sparse_attn's: B batches, Q width of a query and of a KV row, N entries of a query list. */

#define ARGS smelt_sparse_scores_args

static const struct tensor_argument sparse_scores_tensors[] = {
    TENSOR(q, "BTHQ", BF16, ROWS),
    TENSOR(kv, "BSQ", BF16, ROWS),
    TENSOR(indices, "BTW", INT32, 0),
    TENSOR(topk_length, "BT1", INT32, OPTIONAL),
    TENSOR(sink, "H", FP32, OPTIONAL),
    TENSOR(queries, "N", INT32, OPTIONAL),
    TENSOR(query_count, "1", INT32, OPTIONAL),
    TENSOR(lse, "BTH1", FP32, 0),
    TENSOR(target, "BTW", FP32, 0),
};
static const struct scalar_argument sparse_scores_scalars[] = {SCALAR(scale, FLOAT),
                                                               SCALAR(free_multiprocessors, INT)};
static const struct extent_argument sparse_scores_extents[] = {
    EXTENT('B', batches), EXTENT('T', tokens),         EXTENT('S', rows),
    EXTENT('W', width),   EXTENT('N', query_capacity),
};

static void note_sparse_scores(const smelt_sparse_scores_spec *spec, struct made *made) {
    made->extents['H' - 'A'] = spec->heads;
    made->extents['Q' - 'A'] = spec->dqk;
}

OPERATOR_FUNCTIONS(sparse_scores, SPARSE_SCORES, note_sparse_scores)
static const struct pass sparse_scores_pass = {OPERATOR_PASS(sparse_scores)};
OPERATOR_CLASS(sparse_scores, sparse_scores_pass);
#undef ARGS

/* ---- indexer_loss -----------------------------------------------------------------------------
 */

#define ARGS smelt_indexer_loss_args

static const struct tensor_argument indexer_loss_tensors[] = {
    TENSOR(logits, "TW", FP32, 0),       TENSOR(target, "TW", FP32, 0),
    TENSOR(indices, "TW", INT32, 0),     TENSOR(topk_length, "T1", INT32, OPTIONAL),
    TENSOR(weight, "T", FP32, OPTIONAL), TENSOR(grad_loss, "O", FP32, OPTIONAL),
    TENSOR(loss, "O", FP32, 0),          TENSOR(losses, "T", FP32, OPTIONAL),
    TENSOR(grad, "TW", FP32, OPTIONAL),
};
static const struct scalar_argument indexer_loss_scalars[] = {
    SCALAR(rows, LONG), SCALAR(query_weight, FLOAT), SCALAR(free_multiprocessors, INT)};
static const struct extent_argument indexer_loss_extents[] = {EXTENT('T', tokens),
                                                              EXTENT('W', width)};

static void note_indexer_loss(const smelt_indexer_loss_spec *spec, struct made *made) {
    (void)spec;
    made->extents['O' - 'A'] = 1;
}

static smelt_status workspace_indexer_loss(const void *handle, const void *args, size_t *bytes) {
    return smelt_indexer_loss_forward_workspace(handle, args, bytes);
}

OPERATOR_FUNCTIONS(indexer_loss, INDEXER_LOSS, note_indexer_loss)
static const struct pass indexer_loss_pass = {
    OPERATOR_PASS(indexer_loss),
    .workspace_offset = offsetof(ARGS, workspace),
    .workspace_size = offsetof(ARGS, workspace_bytes),
    .workspace_alignment = 256,
    .workspace = workspace_indexer_loss,
};
OPERATOR_CLASS(indexer_loss, indexer_loss_pass);
#undef ARGS

/* ---- indexer_scores ---------------------------------------------------------------------------
 */

#define ARGS smelt_indexer_scores_args

static const struct tensor_argument indexer_scores_tensors[] = {
    TENSOR(q, "THD", BF16, ROWS),
    TENSOR(k, "SD", BF16, ROWS),
    TENSOR(weights, "TH", FP32, 0),
    TENSOR(indices, "TW", INT32, 0),
    TENSOR(topk_length, "T1", INT32, OPTIONAL),
    TENSOR(logits, "TW", FP32, 0),
};
static const struct scalar_argument indexer_scores_scalars[] = {SCALAR(free_multiprocessors, INT)};
static const struct extent_argument indexer_scores_extents[] = {
    EXTENT('T', tokens), EXTENT('S', rows), EXTENT('W', width)};

static void note_indexer_scores(const smelt_indexer_scores_spec *spec, struct made *made) {
    made->extents['H' - 'A'] = spec->heads;
    made->extents['D' - 'A'] = spec->dim;
}

OPERATOR_FUNCTIONS(indexer_scores, INDEXER_SCORES, note_indexer_scores)
static const struct pass indexer_scores_pass = {OPERATOR_PASS(indexer_scores)};
OPERATOR_CLASS(indexer_scores, indexer_scores_pass);
#undef ARGS

/* ---- indexer_bwd ------------------------------------------------------------------------------
 */

#define ARGS smelt_indexer_bwd_args

static const struct tensor_argument indexer_bwd_tensors[] = {
    TENSOR(iq, "THD", BF16, ROWS),
    TENSOR(ik, "SD", BF16, ROWS),
    TENSOR(w, "TH", FP32, 0),
    TENSOR(indices, "TW", INT32, 0),
    TENSOR(topk_length, "T", INT32, OPTIONAL),
    TENSOR(grad, "TW", FP32, 0),
    TENSOR(diq, "THD", BF16, ROWS),
    TENSOR(dw, "TH", FP32, 0),
    TENSOR(dik, "SD", BF16, ROWS | OPTIONAL),
    TENSOR(dik_fp32, "SD", FP32, ROWS | OPTIONAL),
    TENSOR(dik_sum, "SD", FP32, ROWS | OPTIONAL),
};
static const struct scalar_argument indexer_bwd_scalars[] = {SCALAR(free_multiprocessors, INT)};
static const struct extent_argument indexer_bwd_extents[] = {EXTENT('T', tokens), EXTENT('S', rows),
                                                             EXTENT('W', width)};

static void note_indexer_bwd(const smelt_indexer_bwd_spec *spec, struct made *made) {
    made->extents['H' - 'A'] = spec->heads;
    made->extents['D' - 'A'] = spec->dim;
}

static smelt_status workspace_indexer_bwd(const void *handle, const void *args, size_t *bytes) {
    return smelt_indexer_bwd_backward_workspace(handle, args, bytes);
}

OPERATOR_FUNCTIONS_WITH(indexer_bwd, INDEXER_BWD, note_indexer_bwd, smelt_indexer_bwd_backward)
static const struct pass indexer_bwd_pass = {
    OPERATOR_PASS(indexer_bwd),
    .workspace_offset = offsetof(ARGS, workspace),
    .workspace_size = offsetof(ARGS, workspace_bytes),
    .workspace_alignment = 256,
    .workspace = workspace_indexer_bwd,
};
OPERATOR_CLASS(indexer_bwd, indexer_bwd_pass);
#undef ARGS
