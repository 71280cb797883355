/* See indexer_topk_table.h. */
#include "ops/indexer_topk_table.h"

#include "codegen/families/indexer_keys.h"
#include "ops/indexer_topk_chunks.h"
#include "smelt/indexer_topk.h"

#define ARGS smelt_indexer_topk_args
#define NUMBER(name) SMELT__INDEXER_TOPK_##name

enum { MOST_ROWS = 1 << 20 };

enum { T, S, H, D, K }; /* enum smelt__indexer_topk_symbol */

static const struct smelt__symbol symbols[] = {
    [T] = SMELT__BY_ARGS("T", "token", tokens),  [S] = SMELT__BY_ARGS("S", "row", rows),
    [H] = SMELT__BY_KEY("H", "head", "heads"),   [D] = SMELT__BY_KEY("D", "element", "dim"),
    [K] = SMELT__BY_KEY("topk", "slot", "topk"),
};

static const struct smelt__scalar_row scalars[] = {
    {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(rows, INT64, 0, MOST_ROWS)},
    {SMELT__SCALAR(index_offset, INT, INT32_MIN, INT32_MAX)},
    {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},
    {SMELT__SCALAR(causal_limit, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(workspace_limit, SIZE, 0, 0)},
};

#define ROWS(quantized)                                                                            \
    {                                                                                              \
        [NUMBER(QUERY)] = {SMELT__TENSOR(q, quantized, INPUT, T, H, D), .whole_rows = 1},          \
        [NUMBER(KEY)] = {SMELT__TENSOR(k, quantized, INPUT, S, D), .whole_rows = 1},               \
        [NUMBER(WEIGHTS)] = {SMELT__TENSOR(weights, FP32, INPUT, T, H)},                           \
        [NUMBER(KEY_SCALE)] = {SMELT__TENSOR(k_scale, FP32, INPUT, S), .key = "dtype"},            \
        [NUMBER(WINDOW_BEGIN)] = {SMELT__TENSOR(window_begin, INT32, INPUT, T)},                   \
        [NUMBER(WINDOW_END)] = {SMELT__TENSOR(window_end, INT32, INPUT, T)},                       \
        [NUMBER(OFFSET)] = {SMELT__TENSOR(offset, INT32, INPUT, T), .optional = 1},                \
        [NUMBER(INDICES)] = {SMELT__TENSOR(indices, INT32, OUTPUT, T, K)},                         \
        [NUMBER(VALUES)] = {SMELT__TENSOR(values, FP32, OUTPUT, T, K), .optional = 1},             \
        [NUMBER(LENGTHS)] = {SMELT__TENSOR(lengths, INT32, OUTPUT, T), .optional = 1},             \
    }

static const struct smelt__tensor_row rows[] = ROWS(BF16), fp8_rows[] = ROWS(E4M3);

const struct smelt__args_table smelt__indexer_topk_table[] = {
    [SMELT__INDEXER_BF16] = {SMELT__ARGS("SMELT_INDEXER_TOPK_ARGS_INIT", causal_limit, symbols,
                                         scalars, rows),
                             SMELT__WORKSPACE(SMELT__CHUNK_ALIGNMENT)},
    [SMELT__INDEXER_FP8] = {SMELT__ARGS("SMELT_INDEXER_TOPK_ARGS_INIT", causal_limit, symbols,
                                        scalars, fp8_rows),
                            SMELT__WORKSPACE(SMELT__CHUNK_ALIGNMENT)},
};
