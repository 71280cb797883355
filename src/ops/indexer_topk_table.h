/* The arguments of the operator indexer_topk as tables (args_table.h); smelt/indexer_topk.h has
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
    SMELT__INDEXER_TOPK_G,
    SMELT__INDEXER_TOPK_WIDTH,
    SMELT__INDEXER_TOPK_P, /* published blocks */
    SMELT__INDEXER_TOPK_C, /* candidates */
};

/* Rows by number. */
enum smelt__indexer_topk_tensor {
    SMELT__INDEXER_TOPK_QUERY,
    SMELT__INDEXER_TOPK_KEY,
    SMELT__INDEXER_TOPK_WEIGHTS,   /* optional: there with weights=1 */
    SMELT__INDEXER_TOPK_KEY_SCALE, /* optional: there with fp8 */
    SMELT__INDEXER_TOPK_WINDOW_BEGIN,
    SMELT__INDEXER_TOPK_WINDOW_END,
    SMELT__INDEXER_TOPK_OFFSET,
    SMELT__INDEXER_TOPK_LIMIT,
    SMELT__INDEXER_TOPK_CANDIDATES, /* optional: there with candidate_block */
    SMELT__INDEXER_TOPK_INDICES,
    SMELT__INDEXER_TOPK_VALUES,
    SMELT__INDEXER_TOPK_LENGTHS,
    SMELT__INDEXER_TOPK_PUBLISHED, /* optional: there with publish */
    SMELT__INDEXER_TOPK_TENSORS
};

#define OF(name) SMELT__INDEXER_TOPK_##name
#define ARGS smelt_indexer_topk_args

enum { SMELT__INDEXER_TOPK_MOST_ROWS = 1 << 20 };

static const struct smelt__symbol smelt__indexer_topk_symbols[] = {
    [OF(T)] = SMELT__BY_ARGS("T", "token", tokens),
    [OF(S)] = SMELT__BY_ARGS("S", "row", rows),
    [OF(H)] = SMELT__BY_KEY("H", "head", "heads"),
    [OF(D)] = SMELT__BY_KEY("D", "element", "dim"),
    [OF(K)] = SMELT__BY_KEY("topk", "slot", "topk"),
    [OF(G)] = SMELT__BY_KEY("G", "group", "groups"),
    [OF(WIDTH)] = SMELT__BY_ARGS("width", "slot", width),
    [OF(P)] = SMELT__BY_KEY("publish", "slot", "publish"),
    [OF(C)] = SMELT__BY_ARGS("C", "candidate", candidate_count),
};

static const struct smelt__scalar_row smelt__indexer_topk_scalars[] = {
    {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(rows, INT64, 0, SMELT__INDEXER_TOPK_MOST_ROWS)},
    {SMELT__SCALAR(width, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(candidate_count, INT64, 0, INT32_MAX), .most_key = "candidate_block",
     .unless = "candidate_block"},
    {SMELT__SCALAR(index_offset, INT, INT32_MIN, INT32_MAX)},
    {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},
    {SMELT__SCALAR(scale, FLOAT, 0, 0), .zero = 1},
    {SMELT__SCALAR(reserved, INT, 0, 0)},
    {SMELT__SCALAR(causal_limit, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(workspace_limit, SIZE, 0, 0)},
};

/* `slots`: a list's width; then the dimensions that an output's rows have. */
#define ROWS(quantized, slots, ...)                                                                \
    {                                                                                              \
        [OF(QUERY)] = {SMELT__TENSOR(q, quantized, INPUT, OF(T), OF(H), OF(D)), .whole_rows = 1},  \
        [OF(KEY)] = {SMELT__TENSOR(k, quantized, INPUT, OF(S), OF(D)), .whole_rows = 1},           \
        [OF(WEIGHTS)] = {SMELT__TENSOR(weights, FP32, INPUT, OF(T), OF(H)), .key = "weights"},     \
        [OF(KEY_SCALE)] = {SMELT__TENSOR(k_scale, FP32, INPUT, OF(S)), .key = "dtype"},            \
        [OF(WINDOW_BEGIN)] = {SMELT__TENSOR(window_begin, INT32, INPUT, OF(T))},                   \
        [OF(WINDOW_END)] = {SMELT__TENSOR(window_end, INT32, INPUT, OF(T))},                       \
        [OF(OFFSET)] = {SMELT__TENSOR(offset, INT32, INPUT, OF(T)), .optional = 1},                \
        [OF(LIMIT)] = {SMELT__TENSOR(limit, INT32, INPUT, OF(T)), .optional = 1},                  \
        [OF(CANDIDATES)] = {SMELT__TENSOR(candidates, INT32, INPUT, OF(T), OF(C)),                 \
                            .key = "candidate_block"},                                             \
        [OF(INDICES)] = {SMELT__TENSOR(indices, INT32, OUTPUT, __VA_ARGS__, slots)},               \
        [OF(VALUES)] = {SMELT__TENSOR(values, FP32, OUTPUT, __VA_ARGS__, OF(K)), .optional = 1},   \
        [OF(LENGTHS)] = {SMELT__TENSOR(lengths, INT32, OUTPUT, __VA_ARGS__), .optional = 1},       \
        [OF(PUBLISHED)] = {SMELT__TENSOR(published, INT32, OUTPUT, __VA_ARGS__, OF(P)),            \
                           .key = "publish"},                                                      \
    }

/* With groups=1 outputs do not have the dimension G; with expand=1 lists have topk slots. */
static const struct smelt__tensor_row smelt__indexer_topk_bf16[] = ROWS(BF16, OF(K), OF(T)),
                                      smelt__indexer_topk_fp8[] = ROWS(E4M3, OF(K), OF(T)),
                                      smelt__indexer_topk_groups_bf16[] =
                                          ROWS(BF16, OF(K), OF(T), OF(G)),
                                      smelt__indexer_topk_groups_fp8[] =
                                          ROWS(E4M3, OF(K), OF(T), OF(G)),
                                      smelt__indexer_topk_rows_bf16[] =
                                          ROWS(BF16, OF(WIDTH), OF(T)),
                                      smelt__indexer_topk_rows_fp8[] = ROWS(E4M3, OF(WIDTH), OF(T)),
                                      smelt__indexer_topk_group_rows_bf16[] =
                                          ROWS(BF16, OF(WIDTH), OF(T), OF(G)),
                                      smelt__indexer_topk_group_rows_fp8[] =
                                          ROWS(E4M3, OF(WIDTH), OF(T), OF(G));

#define TABLE(rows)                                                                                \
    {                                                                                              \
        SMELT__ARGS("SMELT_INDEXER_TOPK_ARGS_INIT", causal_limit, smelt__indexer_topk_symbols,     \
                    smelt__indexer_topk_scalars, rows),                                            \
            SMELT__WORKSPACE(SMELT__WORKSPACE_ALIGNMENT)                                           \
    }

static const struct smelt__args_table smelt__indexer_topk_table[] = {
    TABLE(smelt__indexer_topk_bf16),
    TABLE(smelt__indexer_topk_fp8),
    TABLE(smelt__indexer_topk_groups_bf16),
    TABLE(smelt__indexer_topk_groups_fp8),
    TABLE(smelt__indexer_topk_rows_bf16),
    TABLE(smelt__indexer_topk_rows_fp8),
    TABLE(smelt__indexer_topk_group_rows_bf16),
    TABLE(smelt__indexer_topk_group_rows_fp8),
};

/* The number of a spec's table. */
static inline int smelt__indexer_topk_table_number(int fp8, int groups, int expand) {
    return (fp8 ? 1 : 0) + (groups > 1 ? 2 : 0) + (expand > 1 ? 4 : 0);
}

#undef TABLE
#undef ARGS
#undef OF
#undef ROWS
