/* See indexer_bwd_tensors.h. */
#include "ops/indexer_bwd_tensors.h"

#include "smelt/indexer_bwd.h"
#include "smelt/kernels.h"

#define SYMBOL(name) SMELT__INDEXER_BWD_##name
#define FIELD(tensor, type, role_)                                                                 \
    .name = #tensor, .field = offsetof(smelt_indexer_bwd_args, tensor), .element = (type),         \
    .role = (role_), .passes = SMELT_PASS_BACKWARD

static const struct smelt__symbol symbols[SMELT__INDEXER_BWD_SYMBOLS] = {
    [SYMBOL(T)] = {"T", "token"},        [SYMBOL(S)] = {"S", "row"},
    [SYMBOL(H)] = {"H", "head"},         [SYMBOL(D)] = {"D", "element"},
    [SYMBOL(WIDTH)] = {"width", "slot"}, [SYMBOL(ONE)] = {"1", "element"},
};

#define BY_HEAD .whole_rows = 1, .dimensions = 3, .shape = {SYMBOL(T), SYMBOL(H), SYMBOL(D)}
#define BY_KEY .whole_rows = 1, .dimensions = 2, .shape = {SYMBOL(S), SYMBOL(D)}

static const struct smelt__tensor_row rows[SMELT__INDEXER_BWD_TENSORS] = {
    [SYMBOL(Q)] = {FIELD(q, SMELT__BF16, SMELT__INPUT), BY_HEAD},
    /* The kernels keep the step between rows in 32 bits. */
    [SYMBOL(K)] = {FIELD(k, SMELT__BF16, SMELT__INPUT), BY_KEY, .most_stride = INT32_MAX},
    [SYMBOL(WEIGHTS)] = {FIELD(weights, SMELT__FP32, SMELT__INPUT), .dimensions = 2,
                         .shape = {SYMBOL(T), SYMBOL(H)}},
    [SYMBOL(INDICES)] = {FIELD(indices, SMELT__INT32, SMELT__INPUT), .dimensions = 2,
                         .shape = {SYMBOL(T), SYMBOL(WIDTH)}},
    [SYMBOL(TOPK_LENGTH)] = {FIELD(topk_length, SMELT__INT32, SMELT__INPUT), .optional = 1,
                             .dimensions = 2, .shape = {SYMBOL(T), SYMBOL(ONE)}},
    [SYMBOL(GRAD)] = {FIELD(grad, SMELT__FP32, SMELT__INPUT), .dimensions = 2,
                      .shape = {SYMBOL(T), SYMBOL(WIDTH)}},
    [SYMBOL(DQ)] = {FIELD(dq, SMELT__BF16, SMELT__OUTPUT), BY_HEAD},
    [SYMBOL(DWEIGHTS)] = {FIELD(dweights, SMELT__FP32, SMELT__OUTPUT), .dimensions = 2,
                          .shape = {SYMBOL(T), SYMBOL(H)}},
    [SYMBOL(DK)] = {FIELD(dk, SMELT__BF16, SMELT__OUTPUT), .optional = 1, BY_KEY},
    [SYMBOL(DK_FP32)] = {FIELD(dk_fp32, SMELT__FP32, SMELT__OUTPUT), .optional = 1, BY_KEY},
    [SYMBOL(DK_SUM)] = {FIELD(dk_sum, SMELT__FP32, SMELT__ACCUMULATED), .optional = 1, BY_KEY},
};

const struct smelt__tensor_table smelt__indexer_bwd_tensors = {
    .symbols = symbols,
    .symbol_count = SMELT__INDEXER_BWD_SYMBOLS,
    .rows = rows,
    .count = SMELT__INDEXER_BWD_TENSORS,
    .args_bytes = sizeof(smelt_indexer_bwd_args),
};
