/* The operator indexer_logits: the lightning indexer's logits (docs/operators.md). One kernel: of all
 * keys, or of the keys of listed blocks. */
#include "codegen/families/indexer_keys.h"
#include "codegen/families/indexer_logits_fwd.h"
#include "codegen/families/indexer_scores_fwd.h"

enum { FWD, SCORES }; /* members by number */

static const struct smelt__member members[] = {
    [FWD] = {"fwd", &smelt__indexer_logits_fwd.schema, 0},
    [SCORES] = {"scores", &smelt__indexer_scores_fwd.schema, 0},
};

static const struct smelt__key keys[] = {SMELT__INDEXER_SHAPE, SMELT__INDEXER_SCORING,
                                         SMELT__INDEXER_WEIGHTS_DTYPE};

static void expand(const struct smelt__spec *spec, unsigned pass,
                   struct smelt__expansion *expansion) {
    smelt__indexer_logits_expand(expansion, spec, FWD, SCORES, pass);
}

const struct smelt__operator_family smelt__indexer_logits = {
    .schema = {.name = "indexer_logits",
               .is_operator = 1,
               .example = "indexer_logits:heads=32,dim=128,dtype=bf16",
               .summary = "logits of the lightning indexer: how well each key suits each query",
               SMELT__KEYS(keys),
               SMELT__MEMBERS(members),
               .check = smelt__indexer_scoring_check},
    .passes = SMELT__FORWARD,
    SMELT__FAMILIES(&smelt__indexer_logits_fwd, &smelt__indexer_scores_fwd),
    .expand = expand,
};
