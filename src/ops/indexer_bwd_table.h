/* The arguments of the operator indexer_bwd as a table (args_table.h); smelt/indexer_bwd.h has
 * their meaning. */
#pragma once

#include "ops/args_table.h"
#include "smelt/indexer_bwd.h"

/* Extents by number. */
enum smelt__indexer_bwd_symbol {
    SMELT__INDEXER_BWD_T,
    SMELT__INDEXER_BWD_S,
    SMELT__INDEXER_BWD_H,
    SMELT__INDEXER_BWD_D,
    SMELT__INDEXER_BWD_WIDTH,
    SMELT__INDEXER_BWD_ONE,
    SMELT__INDEXER_BWD_R, /* rows of an entry */
    SMELT__INDEXER_BWD_N  /* slots of a query: R for each entry */
};

/* Rows by number. */
enum smelt__indexer_bwd_tensor {
    SMELT__INDEXER_BWD_Q,
    SMELT__INDEXER_BWD_K,
    SMELT__INDEXER_BWD_WEIGHTS,
    SMELT__INDEXER_BWD_INDICES,
    SMELT__INDEXER_BWD_TOPK_LENGTH,
    SMELT__INDEXER_BWD_GRAD,
    SMELT__INDEXER_BWD_DQ,
    SMELT__INDEXER_BWD_DWEIGHTS,
    SMELT__INDEXER_BWD_DK, /* of these three one is given */
    SMELT__INDEXER_BWD_DK_FP32,
    SMELT__INDEXER_BWD_DK_SUM,
    SMELT__INDEXER_BWD_TENSORS
};

#define OF(name) SMELT__INDEXER_BWD_##name
#define ARGS smelt_indexer_bwd_args

static const struct smelt__symbol smelt__indexer_bwd_symbols[] = {
    [OF(T)] = SMELT__BY_ARGS("T", "token", tokens),
    [OF(S)] = SMELT__BY_ARGS("S", "row", rows),
    [OF(H)] = SMELT__BY_KEY("H", "head", "heads"),
    [OF(D)] = SMELT__BY_KEY("D", "element", "dim"),
    [OF(WIDTH)] = SMELT__BY_ARGS("width", "slot", width),
    [OF(ONE)] = SMELT__ONE_ELEMENT,
    [OF(R)] = SMELT__BY_KEY("R", "row", "granularity"),
    [OF(N)] = SMELT__BY_ARGS_TIMES("N", "slot", width, OF(R)),
};

static const struct smelt__scalar_row smelt__indexer_bwd_scalars[] = {
    {SMELT__SCALAR(tokens, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(rows, INT64, 0, INT32_MAX)},
    {SMELT__SCALAR(width, INT64, 1, INT32_MAX), .most_key = "topk"},
    {SMELT__SCALAR(free_multiprocessors, INT, 0, INT32_MAX)},
    {SMELT__SCALAR(reserved, INT, 0, 0)},
};

/* The kernels keep the step between keys in 32 bits. */
#define ROWS(slots)                                                                                \
    {                                                                                              \
        [OF(Q)] = {SMELT__TENSOR(q, BF16, INPUT, OF(T), OF(H), OF(D)), .whole_rows = 1},           \
        [OF(K)] = {SMELT__TENSOR(k, BF16, INPUT, OF(S), OF(D)), .whole_rows = 1,                   \
                   .most_stride = INT32_MAX},                                                      \
        [OF(WEIGHTS)] = {SMELT__TENSOR(weights, FP32, INPUT, OF(T), OF(H))},                       \
        [OF(INDICES)] = {SMELT__TENSOR(indices, INT32, INPUT, OF(T), OF(WIDTH))},                  \
        [OF(TOPK_LENGTH)] = {SMELT__TENSOR(topk_length, INT32, INPUT, OF(T), OF(ONE)),             \
                             .optional = 1},                                                       \
        [OF(GRAD)] = {SMELT__TENSOR(grad, FP32, INPUT, OF(T), slots)},                             \
        [OF(DQ)] = {SMELT__TENSOR(dq, BF16, OUTPUT, OF(T), OF(H), OF(D)), .whole_rows = 1},        \
        [OF(DWEIGHTS)] = {SMELT__TENSOR(dweights, FP32, OUTPUT, OF(T), OF(H))},                    \
        [OF(DK)] = {SMELT__TENSOR(dk, BF16, OUTPUT, OF(S), OF(D)), .whole_rows = 1, .one_of = 1},  \
        [OF(DK_FP32)] = {SMELT__TENSOR(dk_fp32, FP32, OUTPUT, OF(S), OF(D)), .whole_rows = 1,      \
                         .one_of = 1},                                                             \
        [OF(DK_SUM)] = {SMELT__TENSOR(dk_sum, FP32, ACCUMULATED, OF(S), OF(D)), .whole_rows = 1,   \
                        .one_of = 1},                                                              \
    }

static const struct smelt__tensor_row smelt__indexer_bwd_tensors[] = ROWS(OF(WIDTH)),
                                      smelt__indexer_bwd_blocks_tensors[] = ROWS(OF(N));

/* Without and with entries of several rows. */
#define TABLE(tensors)                                                                             \
    {                                                                                              \
        SMELT__ARGS("SMELT_INDEXER_BWD_ARGS_INIT", reserved, smelt__indexer_bwd_symbols,           \
                    smelt__indexer_bwd_scalars, tensors),                                          \
            SMELT__WORKSPACE(SMELT__WORKSPACE_ALIGNMENT),                                          \
    }
static const struct smelt__args_table smelt__indexer_bwd_table[] = {
    TABLE(smelt__indexer_bwd_tensors),
    TABLE(smelt__indexer_bwd_blocks_tensors),
};

#undef ROWS
#undef TABLE
#undef ARGS
#undef OF
