/*
 * The operator indexer_bwd: gradients of the lightning indexer's inputs (docs/operators.md).
 */
#include "codegen/families/indexer_bwd.h"

#include "codegen/families/indexer_bwd_lists.h"
#include "codegen/families/indexer_bwd_main.h"
#include "codegen/families/indexer_keys.h"
#include "codegen/families/key_grads_finish.h"
#include "codegen/families/key_grads_grains.h"
#include "codegen/families/sparse_attn_keys.h"

enum { MAIN }; /* members by number */

static const struct smelt__key keys[] = {
    SMELT__INDEXER_HEADS,       SMELT__INDEXER_TOPK,          SMELT__INDEXER_ACTIVATION,
    SMELT__INDEXER_GRANULARITY, SMELT__INDEXER_WEIGHTS_DTYPE, {SMELT__DETERMINISTIC_KEY},
};

static void expand(const struct smelt__spec *spec, unsigned pass,
                   struct smelt__expansion *expansion) {
    const int deterministic = (int)smelt__spec_get(spec, "deterministic");
    smelt__expansion_add_other(expansion, spec, &smelt__indexer_bwd_lists, 0, pass);
    /* Kernels without a role here get the next one, in the order of enum smelt__indexer_bwd_kernel. */
    for (int i = SMELT__GRAINS_REACH; deterministic && i <= SMELT__GRAINS_GRAINS; i++)
        smelt__expansion_add_other(expansion, spec, &smelt__key_grads_grains, i, pass);
    smelt__expansion_add(expansion, spec, MAIN, pass);
    smelt__expansion_role(expansion, SMELT__INDEXER_BWD_MAIN);
    if (deterministic)
        smelt__expansion_add_other(expansion, spec, &smelt__key_grads_grains, SMELT__GRAINS_TOTALS,
                                   pass);
    smelt__spec_set(smelt__expansion_add_other(expansion, spec, &smelt__key_grads_finish, 0, pass),
                    "dqk", smelt__spec_get(spec, "dim"));
    smelt__expansion_role(expansion, SMELT__INDEXER_BWD_FINISH);
}

/* minimax-m3: each group's head is a query with one head; its lists are the keys with the blocks' largest
 * logits. */
static const struct smelt__preset_row presets[] = {
    SMELT__INDEXER_SLOT_PRESETS,
    {"minimax-m3", "heads=1,dim=128,topk=128,activation=none"},
    {NULL, NULL},
};

const struct smelt__operator_family smelt__indexer_bwd = {
    .schema = {.name = "indexer_bwd",
               .is_operator = 1,
               .example = "indexer_bwd:heads=64,dim=128,topk=2048",
               .summary = "gradients of the lightning indexer's queries, weights and keys",
               SMELT__KEYS(keys),
               SMELT__MEMBER("main", &smelt__indexer_bwd_main.schema)},
    .passes = SMELT__BACKWARD,
    SMELT__FAMILIES(&smelt__indexer_bwd_lists, &smelt__key_grads_grains, &smelt__indexer_bwd_main,
                    &smelt__key_grads_finish),
    .expand = expand,
    .presets = presets,
};
