/* The operator indexer_loss: the indexer's loss and its gradient (docs/operators.md). */
#include <stddef.h>

#include "codegen/families/indexer_loss.h"
#include "codegen/spec/keys.h"

enum { ROWS }; /* members by number */

static const struct smelt__key keys[] = {SMELT__INDEXER_LOSS_TOPK};

static void expand(const struct smelt__spec *spec, unsigned pass,
                   struct smelt__expansion *expansion) {
    smelt__expansion_add(expansion, spec, ROWS, pass);
    smelt__expansion_add_other(expansion, spec, &smelt__indexer_loss_sum, 0, pass);
}

/* The number of keys, pools or blocks that each model's indexer chooses, rounded up to a multiple of 128
 * as in the Python package. */
static const struct smelt__preset_row presets[] = {
    {"glm-5.2", "topk=2048"},
    {"glm-5.3-flash", "topk=512"},
    {"deepseek-v3.2", "topk=2048"},
    {"deepseek-v4-flash", "topk=512"},
    {"deepseek-v4-pro", "topk=1024"},
    {"deepseek-v4.1", "topk=512"},
    {"qwen3.8-flash-next", "topk=512"},
    {"minimax-m3", "topk=128"},
    {NULL, NULL},
};

const struct smelt__operator_family smelt__indexer_loss = {
    .schema = {.name = "indexer_loss",
               .is_operator = 1,
               .example = "indexer_loss:topk=2048",
               .summary = "the indexer's loss against attention's probabilities, and its gradient",
               SMELT__KEYS(keys),
               SMELT__MEMBER("rows", &smelt__indexer_loss_rows.schema)},
    .passes = SMELT__FORWARD,
    SMELT__FAMILIES(&smelt__indexer_loss_rows, &smelt__indexer_loss_sum),
    .expand = expand,
    .presets = presets,
    .training = 1,
};
