/* The operator indexer_scores: the indexer's logits at the selected slots (docs/operators.md). One
 * kernel, whatever topk is. */
#include "codegen/families/indexer_keys.h"
#include "codegen/families/indexer_scores_fwd.h"

static const struct smelt__key keys[] = {
    SMELT__INDEXER_HEADS,       SMELT__INDEXER_TOPK,      SMELT__INDEXER_ACTIVATION,
    SMELT__INDEXER_GRANULARITY, SMELT__INDEXER_BLOCK_MAX, SMELT__INDEXER_WEIGHTS_DTYPE,
};

static int check(const struct smelt__spec *spec, struct smelt__message *message) {
    return smelt__indexer_blocks_check(spec, "granularity", message);
}

/* minimax-m3: each group's head is a query with one head. Its 16 blocks give topk=128, the multiple to
 * which the Python package rounds up. */
static const struct smelt__preset_row presets[] = {
    SMELT__INDEXER_SLOT_PRESETS,
    {"minimax-m3", "heads=1,dim=128,topk=128,activation=none,granularity=128,block_max=128"},
    {NULL, NULL},
};

const struct smelt__operator_family smelt__indexer_scores = {
    .schema = {.name = "indexer_scores",
               .is_operator = 1,
               .example = "indexer_scores:heads=64,dim=128,topk=2048",
               .summary = "logits of the lightning indexer at the slots that were selected",
               SMELT__KEYS(keys),
               .check = check,
               SMELT__MEMBER("fwd", &smelt__indexer_scores_fwd.schema)},
    .passes = SMELT__FORWARD,
    SMELT__FAMILIES(&smelt__indexer_scores_fwd),
    .presets = presets,
    .training = 1,
};
