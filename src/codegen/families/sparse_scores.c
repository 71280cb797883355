/* The operator sparse_scores: attention's probabilities at the selected slots (docs/operators.md).
 * One kernel, for every topk and with or without a sink. */
#include "codegen/families/sparse_attn_keys.h"
#include "codegen/families/sparse_scores_fwd.h"

static const struct smelt__key keys[] = {SMELT__SPARSE_ATTN_COMPUTED};

/* docs/operators.md's table of models: what trains their indexers. */
static const struct smelt__preset_row presets[] = {
    {"glm-5.2", "heads=64,dqk=576,dv=512,topk=2048"},
    {"glm-5.3-flash", "heads=64,dqk=512,dv=512,topk=2176"},
    {"deepseek-v3.2", "heads=128,dqk=576,dv=512,topk=2048"},
    {"deepseek-v4-flash", "heads=64,dqk=512,dv=512,topk=640,sink=1"},
    {"deepseek-v4-pro", "heads=128,dqk=512,dv=512,topk=1152,sink=1"},
    {"deepseek-v4.1", "heads=64,dqk=512,dv=512,topk=640,sink=1"},
    {NULL, NULL},
};

const struct smelt__operator_family smelt__sparse_scores = {
    .schema = {.name = "sparse_scores",
               .is_operator = 1,
               .example = "sparse_scores:heads=64,dqk=576,dv=512,topk=2048",
               .summary = "attention's probabilities at the selected slots, summed over the heads",
               SMELT__KEYS(keys),
               SMELT__MEMBER("fwd", &smelt__sparse_scores_fwd.schema),
               .check = smelt__sparse_attn_check},
    .passes = SMELT__FORWARD,
    SMELT__FAMILIES(&smelt__sparse_scores_fwd),
    .presets = presets,
    .training = 1,
};
