/*
 * The kernel family indexer_bwd_main: dq, dweights, and the sums of dk. It does not depend on
 * topk: the kernel before it writes a plain list of keys, with their gradients, for each group of
 * queries.
 */

#include "codegen/families/indexer_bwd_main.h"
#include "codegen/families/indexer_keys.h"
#include "codegen/families/sparse_attn_keys.h"

static const struct smelt__key keys[] = {
    SMELT__INDEXER_HEADS,
    SMELT__INDEXER_ACTIVATION,
    {SMELT__DETERMINISTIC_KEY},
    {SMELT__VARIANT_KNOB, SMELT__TUNED},
    {SMELT__KNOB("group", "queries whose heads share a tile"), SMELT__AUTO_ONE_OF(1, 2, 4, 8),
     SMELT__TUNED},
    {SMELT__KNOB("stages", "key blocks in flight"), SMELT__AUTO_RANGE(2, 4), SMELT__TUNED,
     .variants = "mma"},
    {SMELT__KNOB("blocks", "thread blocks resident at once"), SMELT__AUTO_RANGE(1, 4),
     SMELT__TUNED_AT(1, 2, 3), .variants = "mma"},
    {SMELT__RACECHECK_KNOB},
    /* At most 2^21: the bounds allow for rounding, which adds at most half a unit in the row's last place per
     * group. */
    {SMELT__KNOB("exact_groups", "groups whose sums of dk are exact at once"),
     SMELT__AUTO_RANGE(1, 2097152), .only_with = "deterministic=1"},
};

const struct smelt__kernel_family smelt__indexer_bwd_main = {
    .schema = {.name = "indexer_bwd_main",
               .summary = "backward pass of the lightning indexer: dq, dweights, and sums of dk",
               SMELT__KEYS(keys)},
    SMELT__VARIANTS({"sm90", smelt__indexer_bwd_main_plan_sm90},
                    {"mma", smelt__indexer_bwd_main_plan_mma}),
};
