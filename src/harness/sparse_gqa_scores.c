/* The harness's row of sparse_gqa_scores. Its problems are those of the attention whose probabilities it
 * computes. */
#include "harness/attention.h"
#include "ops/sparse_gqa_table.h"

#define TARGET SMELT__OF(SMELT__SPARSE_GQA_SCORES_TARGET)

static const char *const options[] = {"width", "valid", "documents",   "lists", "query-list",
                                      "scale", "spiky", "topk-length", NULL};

static const struct smelt__comparison comparisons[] = {SMELT__TARGET_COMPARISON(TARGET, "list")};

static const struct smelt__harness_key keys[] = {
    SMELT__SPEC_KEY(attention, heads),       SMELT__SPEC_KEY(attention, kv_heads),
    SMELT__SPEC_KEY(attention, dqk),         SMELT__SPEC_KEY(attention, topk),
    SMELT__SPEC_KEY(attention, granularity), SMELT__SPEC_KEY(attention, lists),
    SMELT__SPEC_KEY(attention, sink),        {NULL, 0, 0},
};

static const struct smelt__harness_pass passes[] = {
    {SMELT__ATTENTION_PASS(FORWARD, "forward", target, smelt__sparse_gqa_scores_attention,
                           &smelt__sparse_gqa_scores_table, comparisons),
     .leaves_free = 1,
     .partly = SMELT__OF(SMELT__SPARSE_GQA_SCORES_K) | SMELT__OF(SMELT__SPARSE_GQA_SCORES_INDICES) |
               SMELT__OF(SMELT__SPARSE_GQA_SCORES_QUERIES)},
};

/* MiniMax-M3's and Qwen3.8-Flash-Next's. */
static const struct smelt__harness_shape peers[] = {
    {.spec = "sparse_gqa_scores:heads=64,kv_heads=4,dqk=128,topk=16,granularity=128,lists=kv",
     .tokens = 8192,
     .rows = 8192},
    {.spec = "sparse_gqa_scores:heads=24,kv_heads=2,dqk=256,topk=512,granularity=4",
     .tokens = 8192,
     .rows = 8192},
};

const struct smelt__harness_operator smelt__harness_sparse_gqa_scores = {
    SMELT__HARNESS_ROW(sparse_gqa_scores),
    SMELT__HARNESS_KEYS(attention),
    SMELT__ATTENTION_OPTIONS,
    .own_options = &smelt__limits_option,
    .own_option_count = 1,
    .bench = {.tokens = 8192, .rows = 8192},
};
