/* The lightning indexer's operators: their tables. T tokens, S keys (rows), H heads, D their width,
 * K selected, N rows of a matrix, E one more than there are documents. */
#include "operators.h"

/* ---- indexer_logits ---------------------------------------------------------------------------
 */

#define ARGS smelt_indexer_logits_args

static const struct tensor_argument indexer_logits_tensors[] = {
    TENSOR(q, "THD", AS_MADE, ROWS),     TENSOR(k, "SD", AS_MADE, ROWS),
    TENSOR(weights, "TH", FP32, 0),      TENSOR(k_scale, "S", FP32, OPTIONAL),
    TENSOR(window_begin, "T", INT32, 0), TENSOR(window_end, "T", INT32, 0),
    TENSOR(logits, "TS", FP32, 0),
};
static const struct scalar_argument indexer_logits_scalars[] = {SCALAR(free_multiprocessors, INT)};
static const struct extent_argument indexer_logits_extents[] = {EXTENT('T', tokens),
                                                                EXTENT('S', rows)};

static void note_indexer_logits(const smelt_indexer_logits_spec *spec, struct made *made) {
    made->extents['H' - 'A'] = spec->heads;
    made->extents['D' - 'A'] = spec->dim;
    made->element = spec->dtype == SMELT_INDEXER_FP8 ? E4M3 : BF16;
}

OPERATOR_FUNCTIONS(indexer_logits, INDEXER_LOGITS, note_indexer_logits)
static const struct pass indexer_logits_pass = {OPERATOR_PASS(indexer_logits)};
OPERATOR_CLASS(indexer_logits, indexer_logits_pass);
#undef ARGS

/* ---- indexer_windows --------------------------------------------------------------------------
 */

#define ARGS smelt_indexer_windows_args

static const struct tensor_argument indexer_windows_tensors[] = {
    TENSOR(cu_seqlens, "E", INT32, 0),
    TENSOR(cu_seqlens_padded, "E", INT32, OPTIONAL),
    TENSOR(cu_seqlens_keys, "E", INT32, OPTIONAL),
    TENSOR(causal_offset, "F", INT32, OPTIONAL), /* one less than E, which Python sees to */
    TENSOR(query_indices, "T", INT32, OPTIONAL),
    TENSOR(window_begin, "T", INT32, 0),
    TENSOR(window_end, "T", INT32, 0),
};
static const struct scalar_argument indexer_windows_scalars[] = {
    SCALAR(rows, LONG), SCALAR(documents, LONG), SCALAR(ratio, INT)};
static const struct extent_argument indexer_windows_extents[] = {EXTENT('T', tokens)};

static void note_indexer_windows(const smelt_indexer_windows_spec *spec, struct made *made) {
    (void)spec, (void)made;
}

OPERATOR_FUNCTIONS(indexer_windows, INDEXER_WINDOWS, note_indexer_windows)
static const struct pass indexer_windows_pass = {OPERATOR_PASS(indexer_windows)};
OPERATOR_CLASS(indexer_windows, indexer_windows_pass);
#undef ARGS

/* ---- indexer_clean ----------------------------------------------------------------------------
 */

#define ARGS smelt_indexer_clean_args

static const struct tensor_argument indexer_clean_tensors[] = {
    TENSOR(window_begin, "T", INT32, 0),
    TENSOR(window_end, "T", INT32, 0),
    TENSOR(logits, "TS", FP32, 0),
};
static const struct scalar_argument indexer_clean_scalars[] = {SCALAR(free_multiprocessors, INT)};
static const struct extent_argument indexer_clean_extents[] = {EXTENT('T', tokens),
                                                               EXTENT('S', rows)};

static void note_indexer_clean(const smelt_indexer_clean_spec *spec, struct made *made) {
    (void)spec, (void)made;
}

OPERATOR_FUNCTIONS(indexer_clean, INDEXER_CLEAN, note_indexer_clean)
static const struct pass indexer_clean_pass = {OPERATOR_PASS(indexer_clean)};
OPERATOR_CLASS(indexer_clean, indexer_clean_pass);
#undef ARGS

/* ---- indexer_quantize -------------------------------------------------------------------------
 */

#define ARGS smelt_indexer_quantize_args

static const struct tensor_argument indexer_quantize_tensors[] = {
    TENSOR(x, "ND", BF16, ROWS),
    TENSOR(y, "ND", E4M3, ROWS),
    TENSOR(scale, "N", FP32, 0),
    TENSOR(factor, "N", FP32, OPTIONAL),
};
static const struct scalar_argument indexer_quantize_scalars[] = {
    SCALAR(free_multiprocessors, INT)};
static const struct extent_argument indexer_quantize_extents[] = {EXTENT('N', rows)};

static void note_indexer_quantize(const smelt_indexer_quantize_spec *spec, struct made *made) {
    made->extents['D' - 'A'] = spec->dim;
}

OPERATOR_FUNCTIONS(indexer_quantize, INDEXER_QUANTIZE, note_indexer_quantize)
static const struct pass indexer_quantize_pass = {OPERATOR_PASS(indexer_quantize)};
OPERATOR_CLASS(indexer_quantize, indexer_quantize_pass);
#undef ARGS

/* ---- topk_select ------------------------------------------------------------------------------
 */

#define ARGS smelt_topk_select_args

static const struct tensor_argument topk_select_tensors[] = {
    TENSOR(logits, "TS", FP32, 0),
    TENSOR(window_begin, "T", INT32, OPTIONAL),
    TENSOR(window_end, "T", INT32, OPTIONAL),
    TENSOR(offset, "T", INT32, OPTIONAL),
    TENSOR(indices, "TK", INT32, 0),
    TENSOR(values, "TK", FP32, OPTIONAL),
    TENSOR(lengths, "T", INT32, OPTIONAL),
};
static const struct scalar_argument topk_select_scalars[] = {SCALAR(index_offset, INT)};
static const struct extent_argument topk_select_extents[] = {EXTENT('T', tokens),
                                                             EXTENT('S', rows)};

static void note_topk_select(const smelt_topk_select_spec *spec, struct made *made) {
    made->extents['K' - 'A'] = spec->topk;
}

static smelt_status workspace_topk_select(const void *handle, const void *args, size_t *bytes) {
    return smelt_topk_select_forward_workspace(handle, args, bytes);
}

OPERATOR_FUNCTIONS(topk_select, TOPK_SELECT, note_topk_select)
static const struct pass topk_select_pass = {
    OPERATOR_PASS(topk_select),
    .workspace_offset = offsetof(ARGS, workspace),
    .workspace_size = offsetof(ARGS, workspace_bytes),
    .workspace_alignment = 256,
    .workspace = workspace_topk_select,
};
OPERATOR_CLASS(topk_select, topk_select_pass);
#undef ARGS

/* ---- indexer_topk -----------------------------------------------------------------------------
 */

#define ARGS smelt_indexer_topk_args

static const struct tensor_argument indexer_topk_tensors[] = {
    TENSOR(q, "THD", AS_MADE, ROWS),      TENSOR(k, "SD", AS_MADE, ROWS),
    TENSOR(weights, "TH", FP32, 0),       TENSOR(k_scale, "S", FP32, OPTIONAL),
    TENSOR(window_begin, "T", INT32, 0),  TENSOR(window_end, "T", INT32, 0),
    TENSOR(offset, "T", INT32, OPTIONAL), TENSOR(indices, "TK", INT32, 0),
    TENSOR(values, "TK", FP32, OPTIONAL), TENSOR(lengths, "T", INT32, OPTIONAL),
};
static const struct scalar_argument indexer_topk_scalars[] = {
    SCALAR(index_offset, INT), SCALAR(free_multiprocessors, INT), SCALAR(workspace_limit, SIZE)};
static const struct extent_argument indexer_topk_extents[] = {EXTENT('T', tokens),
                                                              EXTENT('S', rows)};

static void note_indexer_topk(const smelt_indexer_topk_spec *spec, struct made *made) {
    made->extents['H' - 'A'] = spec->heads;
    made->extents['D' - 'A'] = spec->dim;
    made->extents['K' - 'A'] = spec->topk;
    made->element = spec->dtype == SMELT_INDEXER_FP8 ? E4M3 : BF16;
}

static smelt_status workspace_indexer_topk(const void *handle, const void *args, size_t *bytes) {
    return smelt_indexer_topk_forward_workspace(handle, args, bytes);
}

OPERATOR_FUNCTIONS(indexer_topk, INDEXER_TOPK, note_indexer_topk)
static const struct pass indexer_topk_pass = {
    OPERATOR_PASS(indexer_topk),
    .workspace_offset = offsetof(ARGS, workspace),
    .workspace_size = offsetof(ARGS, workspace_bytes),
    .workspace_alignment = 256,
    .workspace = workspace_indexer_topk,
};
OPERATOR_CLASS(indexer_topk, indexer_topk_pass);
#undef ARGS
