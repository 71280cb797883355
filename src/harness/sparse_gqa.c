/* The harness's row of sparse_gqa. */
#include <stdlib.h>

#include "harness/attention.h"
#include "ops/sparse_gqa_table.h"

#define TENSOR(name) SMELT__SPARSE_GQA_##name
#define GRAD_TENSOR(name) SMELT__SPARSE_GQA_GRAD_##name

static const char *const options[] = {"width", "valid", "documents",   "lists", "query-list",
                                      "scale", "spiky", "topk-length", "dkv",   NULL};

/* ---- what is compared ------------------------------------------------------------------------ */

#define OUT SMELT__OF(TENSOR(OUT))
#define DQ SMELT__OF(GRAD_TENSOR(DQ))
#define DK SMELT__KEY_ROWS(GRAD_TENSOR(DK), GRAD_TENSOR(DK_FP32), GRAD_TENSOR(DK_SUM))
#define DV SMELT__KEY_ROWS(GRAD_TENSOR(DV), GRAD_TENSOR(DV_FP32), GRAD_TENSOR(DV_SUM))
#define DSINK SMELT__OF(GRAD_TENSOR(DSINK))

#define UNNAMED "a row that no query names, or without weight, is not 0 or its previous value"

static const struct smelt__comparison comparisons[] = {
    SMELT__OUT_COMPARISON(SMELT__METRIC_ROWS(SMELT__OUT_METRIC_ROWS(OUT, SMELT__OF(TENSOR(LSE)))),
                          SMELT__RULE_ROWS(SMELT__OUT_RULE_ROWS(OUT, "row")), TENSOR(B), TENSOR(T)),
};
static const struct smelt__comparison grad_comparisons[] = {
    SMELT__DQ_COMPARISON(DQ, "a query without a valid row, or without weight, is not 0", TENSOR(B),
                         TENSOR(T)),
    SMELT__KEY_COMPARISON(dk, "dk", DK, UNNAMED, TENSOR(B), TENSOR(S), TENSOR(HKV)),
    SMELT__KEY_COMPARISON(dv, "dv", DV, UNNAMED, TENSOR(B), TENSOR(S), TENSOR(HKV)),
    SMELT__DSINK_COMPARISON(DSINK),
};

/* ---- the row --------------------------------------------------------------------------------- */

#define KEYS(KEY, APART)                                                                           \
    KEY(heads), KEY(kv_heads), KEY(dqk), KEY(dv), KEY(topk), KEY(granularity), KEY(lists),         \
        KEY(sink), APART(deterministic), APART(unite)
SMELT__KEY_TABLE(attention, KEYS)

#define PARTLY                                                                                     \
    SMELT__OF(TENSOR(K)) | SMELT__OF(TENSOR(V)) | SMELT__OF(TENSOR(INDICES)) |                     \
        SMELT__OF(TENSOR(QUERIES))

static const struct smelt__harness_pass passes[] = {
    {SMELT__ATTENTION_PASS(FORWARD, "forward", forward, smelt__sparse_gqa_attention,
                           &smelt__sparse_gqa_table, comparisons),
     .partly = PARTLY, .leaves_free = 1},
    {SMELT__ATTENTION_PASS(BACKWARD, "backward", backward, smelt__sparse_gqa_grad_attention,
                           &smelt__sparse_gqa_grad_table, grad_comparisons),
     .partly = PARTLY, .leaves_free = 1},
};

/* MiniMax-M3's attention, Qwen3.8-Flash-Next's, and one like NSA's. */
#define MSA "sparse_gqa:heads=64,kv_heads=4,dqk=128,dv=128,topk=16,granularity=128,lists=kv"
#define QSA "sparse_gqa:heads=24,kv_heads=2,dqk=256,dv=256,topk=512,granularity=4"
#define NSA "sparse_gqa:heads=64,kv_heads=4,dqk=192,dv=128,topk=16,granularity=64,lists=kv"
#define GRAD ",passes=backward"
#define UNITED ",unite=1"
#define AT(spec_, T) .spec = spec_, .tokens = T, .rows = T
#define DRIFT .lists = SMELT__LISTS_DRIFT

static const struct smelt__harness_shape peers[] = {
    {AT(MSA, 8192)},
    {AT(MSA, 65536)},
    {AT(MSA, 8192), DRIFT},
    {AT(MSA UNITED, 8192), DRIFT},
    {AT(QSA, 8192)},
    {AT(QSA, 8192), DRIFT},
    {AT(QSA UNITED, 8192), DRIFT},
    {AT(NSA, 8192)},
    {AT(NSA, 8192), DRIFT},
    {AT(NSA UNITED, 8192), DRIFT},
    {AT(MSA GRAD, 8192)},
    {AT(QSA GRAD, 8192)},
    {AT(NSA GRAD, 8192)},
    {AT(MSA GRAD ",deterministic=1", 8192)},
};

const struct smelt__harness_operator smelt__harness_sparse_gqa = {
    SMELT__HARNESS_ROW(sparse_gqa), SMELT__HARNESS_KEYS(attention),
    SMELT__ATTENTION_OPTIONS,       .own_options = &smelt__limits_option,
    .own_option_count = 1,          .bench = {.tokens = 8192, .rows = 8192},
};
