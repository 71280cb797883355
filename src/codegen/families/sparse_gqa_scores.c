/* The operator sparse_gqa_scores: attention's probabilities at the entries of grouped heads' lists
 * (docs/operators.md). One kernel, for every topk and with or without a sink. */
#include "codegen/families/sparse_gqa.h"

static const struct smelt__key kernel_keys[] = {
    {SMELT__GQA_HEADS},       {SMELT__GQA_KV_HEADS}, {SMELT__GQA_DQK},
    {SMELT__GQA_GRANULARITY}, {SMELT__GQA_LISTS},    SMELT__GQA_KNOBS_MMA,
};

static const struct smelt__kernel_family sparse_gqa_scores_fwd = {
    .schema = {.name = "sparse_gqa_scores_fwd",
               .summary = "attention's probabilities at the entries of grouped heads' lists",
               SMELT__KEYS(kernel_keys),
               .check = smelt__sparse_gqa_check},
    SMELT__VARIANTS({"mma", smelt__sparse_gqa_plan_mma}),
};

static const struct smelt__key keys[] = {
    {SMELT__GQA_HEADS},       {SMELT__GQA_KV_HEADS}, {SMELT__GQA_DQK},  {SMELT__GQA_TOPK},
    {SMELT__GQA_GRANULARITY}, {SMELT__GQA_LISTS},    {SMELT__SINK_KEY},
};

static const struct smelt__preset_row presets[] = {
    {"minimax-m3", "heads=64,kv_heads=4,dqk=128,topk=16,granularity=128,lists=kv"},
    {"qwen3.8-flash-next", "heads=24,kv_heads=2,dqk=256,topk=512,granularity=4"},
    {NULL, NULL},
};

const struct smelt__operator_family smelt__sparse_gqa_scores = {
    .schema = {.name = "sparse_gqa_scores",
               .is_operator = 1,
               .example = "sparse_gqa_scores:heads=64,kv_heads=4,dqk=128,topk=16,granularity=128,"
                          "lists=kv",
               .summary = "attention's probabilities at the entries of grouped heads' lists",
               SMELT__KEYS(keys),
               SMELT__MEMBER("fwd", &sparse_gqa_scores_fwd.schema),
               .check = smelt__sparse_gqa_check},
    .passes = SMELT__FORWARD,
    SMELT__FAMILIES(&sparse_gqa_scores_fwd),
    .presets = presets,
    .training = 1,
};
