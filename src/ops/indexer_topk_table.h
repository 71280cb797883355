/* The arguments of the operator indexer_topk as a table (args_table.h); smelt/indexer_topk.h has
 * their meaning. */
#pragma once

#include "ops/args_table.h"
#include "smelt/indexer_topk.h"

/* Extents by number. */
enum smelt__indexer_topk_symbol {
    SMELT__INDEXER_TOPK_T,
    SMELT__INDEXER_TOPK_S,
    SMELT__INDEXER_TOPK_H,
    SMELT__INDEXER_TOPK_D,
    SMELT__INDEXER_TOPK_K,
};

/* Rows by number. */
enum smelt__indexer_topk_tensor {
    SMELT__INDEXER_TOPK_QUERY,
    SMELT__INDEXER_TOPK_KEY,
    SMELT__INDEXER_TOPK_WEIGHTS,
    SMELT__INDEXER_TOPK_KEY_SCALE, /* optional: there with fp8 */
    SMELT__INDEXER_TOPK_WINDOW_BEGIN,
    SMELT__INDEXER_TOPK_WINDOW_END,
    SMELT__INDEXER_TOPK_OFFSET,
    SMELT__INDEXER_TOPK_INDICES,
    SMELT__INDEXER_TOPK_VALUES,
    SMELT__INDEXER_TOPK_LENGTHS,
    SMELT__INDEXER_TOPK_TENSORS
};

#define OF(name) SMELT__INDEXER_TOPK_##name
#define ARGS smelt_indexer_topk_args

enum { SMELT__INDEXER_TOPK_MOST_ROWS = 1 << 20 };

static const struct smelt__symbol smelt__indexer_topk_symbols[] = {
    [OF(T)] = SMELT__BY_ARGS("T", "token", tokens),  [OF(S)] = SMELT__BY_ARGS("S", "row", rows),
    [OF(H)] = SMELT__BY_KEY("H", "head", "heads"),   [OF(D)] = SMELT__BY_KEY("D", "element", "dim"),
    [OF(K)] = SMELT__BY_KEY("topk", "slot", "topk"),
};

static const struct smelt__scalar_row smelt__indexer_topk_scalars[] = {
    {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(rows, INT64, 0, SMELT__INDEXER_TOPK_MOST_ROWS)},
    {SMELT__SCALAR(index_offset, INT, INT32_MIN, INT32_MAX)},
    {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},
    {SMELT__SCALAR(causal_limit, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(workspace_limit, SIZE, 0, 0)},
};

#define ROWS(quantized)                                                                            \
    {                                                                                              \
        [OF(QUERY)] = {SMELT__TENSOR(q, quantized, INPUT, OF(T), OF(H), OF(D)), .whole_rows = 1},  \
        [OF(KEY)] = {SMELT__TENSOR(k, quantized, INPUT, OF(S), OF(D)), .whole_rows = 1},           \
        [OF(WEIGHTS)] = {SMELT__TENSOR(weights, FP32, INPUT, OF(T), OF(H))},                       \
        [OF(KEY_SCALE)] = {SMELT__TENSOR(k_scale, FP32, INPUT, OF(S)), .key = "dtype"},            \
        [OF(WINDOW_BEGIN)] = {SMELT__TENSOR(window_begin, INT32, INPUT, OF(T))},                   \
        [OF(WINDOW_END)] = {SMELT__TENSOR(window_end, INT32, INPUT, OF(T))},                       \
        [OF(OFFSET)] = {SMELT__TENSOR(offset, INT32, INPUT, OF(T)), .optional = 1},                \
        [OF(INDICES)] = {SMELT__TENSOR(indices, INT32, OUTPUT, OF(T), OF(K))},                     \
        [OF(VALUES)] = {SMELT__TENSOR(values, FP32, OUTPUT, OF(T), OF(K)), .optional = 1},         \
        [OF(LENGTHS)] = {SMELT__TENSOR(lengths, INT32, OUTPUT, OF(T)), .optional = 1},             \
    }

static const struct smelt__tensor_row smelt__indexer_topk_tensors[] = ROWS(BF16),
                                      smelt__indexer_topk_fp8_tensors[] = ROWS(E4M3);

static const struct smelt__args_table smelt__indexer_topk_table[] = {
    {/* bf16 */ SMELT__ARGS("SMELT_INDEXER_TOPK_ARGS_INIT", causal_limit,
                            smelt__indexer_topk_symbols, smelt__indexer_topk_scalars,
                            smelt__indexer_topk_tensors),
     SMELT__WORKSPACE(SMELT__WORKSPACE_ALIGNMENT)},
    {/* fp8 */ SMELT__ARGS("SMELT_INDEXER_TOPK_ARGS_INIT", causal_limit,
                           smelt__indexer_topk_symbols, smelt__indexer_topk_scalars,
                           smelt__indexer_topk_fp8_tensors),
     SMELT__WORKSPACE(SMELT__WORKSPACE_ALIGNMENT)},
};

#undef ARGS
#undef OF
#undef ROWS
