/* The lightning indexer's operators: their tables. T tokens, S keys (rows), H heads, D their width,
 * K selected, N rows of a matrix, E one more than there are documents. */
#include "operators.h"

/* ---- indexer_logits -------------------------------------------------------------------------- */

#define ARGS smelt_indexer_logits_args

static const struct tensor_argument indexer_logits_tensors[] = {
    TENSOR(q, "THD", AS_MADE, ROWS),     TENSOR(k, "SD", AS_MADE, ROWS),
    TENSOR(weights, "TH", FP32, 0),      TENSOR(k_scale, "S", FP32, OPTIONAL),
    TENSOR(window_begin, "T", INT32, 0), TENSOR(window_end, "T", INT32, 0),
    TENSOR(logits, "TS", FP32, OUTPUT),
};
static const struct scalar_argument indexer_logits_scalars[] = {SCALAR(free_multiprocessors, INT)};
static const struct extent_argument indexer_logits_extents[] = {EXTENT('T', tokens),
                                                                EXTENT('S', rows)};

NOTE(indexer_logits,
     FIX('H', heads) FIX('D', dim) made->element = key_of(spec, "dtype") ? E4M3 : BF16;)

OPERATOR(indexer_logits, INDEXER_LOGITS);
#undef ARGS

/* ---- indexer_windows ------------------------------------------------------------------------- */

#define ARGS smelt_indexer_windows_args

static const struct tensor_argument indexer_windows_tensors[] = {
    TENSOR(cu_seqlens, "E", INT32, 0),
    TENSOR(cu_seqlens_padded, "E", INT32, OPTIONAL),
    TENSOR(cu_seqlens_keys, "E", INT32, OPTIONAL),
    TENSOR(causal_offset, "F", INT32, OPTIONAL), /* one less than E, which Python sees to */
    TENSOR(query_indices, "T", INT32, OPTIONAL),
    TENSOR(window_begin, "T", INT32, OUTPUT),
    TENSOR(window_end, "T", INT32, OUTPUT),
};
static const struct scalar_argument indexer_windows_scalars[] = {
    GIVEN(tokens, 'T'), SCALAR(rows, LONG), SCALAR(documents, LONG), SCALAR(ratio, INT)};
static const struct extent_argument indexer_windows_extents[] = {EXTENT('T', tokens)};

NOTE(indexer_windows, )

OPERATOR(indexer_windows, INDEXER_WINDOWS);
#undef ARGS

/* ---- indexer_clean --------------------------------------------------------------------------- */

#define ARGS smelt_indexer_clean_args

static const struct tensor_argument indexer_clean_tensors[] = {
    TENSOR(window_begin, "T", INT32, 0),
    TENSOR(window_end, "T", INT32, 0),
    TENSOR(logits, "TS", FP32, WRITTEN),
};
static const struct scalar_argument indexer_clean_scalars[] = {SCALAR(free_multiprocessors, INT)};
static const struct extent_argument indexer_clean_extents[] = {EXTENT('T', tokens),
                                                               EXTENT('S', rows)};

NOTE(indexer_clean, )

OPERATOR(indexer_clean, INDEXER_CLEAN);
#undef ARGS

/* ---- indexer_quantize ------------------------------------------------------------------------ */

#define ARGS smelt_indexer_quantize_args

static const struct tensor_argument indexer_quantize_tensors[] = {
    TENSOR(x, "ND", BF16, ROWS | FOLDED),
    TENSOR(factor, "N", FP32, OPTIONAL | FOLDED),
    TENSOR(y, "ND", E4M3, ROWS | OUTPUT | FOLDED),
    TENSOR(scale, "N", FP32, OUTPUT | FOLDED),
};
static const struct scalar_argument indexer_quantize_scalars[] = {
    SCALAR(free_multiprocessors, INT)};
static const struct extent_argument indexer_quantize_extents[] = {EXTENT('N', rows)};

NOTE(indexer_quantize, FIX('D', dim))

OPERATOR(indexer_quantize, INDEXER_QUANTIZE);
#undef ARGS

/* ---- topk_select ----------------------------------------------------------------------------- */

#define ARGS smelt_topk_select_args

static const struct tensor_argument topk_select_tensors[] = {
    TENSOR(logits, "TS", FP32, 0),
    TENSOR(window_begin, "T", INT32, OPTIONAL),
    TENSOR(window_end, "T", INT32, OPTIONAL),
    TENSOR(offset, "T", INT32, OPTIONAL),
    TENSOR(indices, "TK", INT32, OUTPUT),
    TENSOR(values, "TK", FP32, OPTIONAL | OUTPUT),
    TENSOR(lengths, "T", INT32, OPTIONAL | OUTPUT),
};
static const struct scalar_argument topk_select_scalars[] = {SCALAR(index_offset, INT)};
static const struct extent_argument topk_select_extents[] = {EXTENT('T', tokens),
                                                             EXTENT('S', rows)};

NOTE(topk_select, FIX('K', topk))

OPERATOR_WITH_WORKSPACE(topk_select, TOPK_SELECT, smelt_topk_select_forward);
#undef ARGS

/* ---- indexer_topk ---------------------------------------------------------------------------- */

#define ARGS smelt_indexer_topk_args

static const struct tensor_argument indexer_topk_tensors[] = {
    TENSOR(q, "THD", AS_MADE, ROWS),
    TENSOR(k, "SD", AS_MADE, ROWS),
    TENSOR(weights, "TH", FP32, 0),
    TENSOR(k_scale, "S", FP32, OPTIONAL),
    TENSOR(window_begin, "T", INT32, 0),
    TENSOR(window_end, "T", INT32, 0),
    TENSOR(offset, "T", INT32, OPTIONAL),
    TENSOR(indices, "TK", INT32, OUTPUT),
    TENSOR(values, "TK", FP32, OPTIONAL | OUTPUT),
    TENSOR(lengths, "T", INT32, OPTIONAL | OUTPUT),
};
static const struct scalar_argument indexer_topk_scalars[] = {
    SCALAR(index_offset, INT), SCALAR(free_multiprocessors, INT), SCALAR(workspace_limit, SIZE),
    SCALAR(causal_limit, LONG)};
static const struct extent_argument indexer_topk_extents[] = {EXTENT('T', tokens),
                                                              EXTENT('S', rows)};

NOTE(indexer_topk, FIX('H', heads) FIX('D', dim) FIX('K', topk)
                       made->element = key_of(spec, "dtype") ? E4M3 : BF16;)

OPERATOR_WITH_WORKSPACE(indexer_topk, INDEXER_TOPK, smelt_indexer_topk_forward);
#undef ARGS
