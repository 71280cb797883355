/*
 * The kernel family indexer_scores_fwd: its keys, and which variant a spec gets. Asking for a
 * variant by name gets that one or the reason why not.
 */
#include "codegen/families/indexer_scores_fwd.h"

#include "codegen/families/indexer_keys.h"

static const struct smelt__key keys[] = {
    SMELT__INDEXER_HEADS,
    {SMELT__OPTIONAL("dtype", "elements of q and k: bf16, or e4m3 with scales"),
     SMELT__NAMES_2(bf16, fp8)},
    SMELT__INDEXER_SUMS,
    SMELT__INDEXER_GRANULARITY,
    SMELT__INDEXER_BLOCK_MAX,
    SMELT__INDEXER_STORED_LOGITS,
    {SMELT__OPTIONAL("windows", "1: rows outside a query's window are masked"),
     SMELT__ONE_OF(0, 1)},
    {SMELT__VARIANT_KNOB},
    {SMELT__KNOB("warps", "warps of a thread block"), SMELT__AUTO_ONE_OF(4, 8), SMELT__TUNED,
     .variants = "mma"},
    {SMELT__KNOB("blocks", "thread blocks resident at once"), SMELT__AUTO_RANGE(1, 3), SMELT__TUNED,
     .variants = "mma"},
    {SMELT__KNOB("warp_keys", "slots that a warp reads together"), SMELT__AUTO_ONE_OF(16, 32),
     SMELT__TUNED, .variants = "mma"},
    {SMELT__KNOB("warpgroups", "warpgroups that compute"), SMELT__AUTO_RANGE(2, 4), SMELT__TUNED,
     .variants = "sm90"},
    {SMELT__KNOB("block_keys", "slots of a block"), SMELT__AUTO_ONE_OF(64, 128), SMELT__TUNED,
     .variants = "sm90"},
    {SMELT__KNOB("stages", "blocks of slots that each warpgroup has in flight"),
     SMELT__AUTO_RANGE(2, 8), SMELT__TUNED_AT(2, 3, 4), .variants = "sm90"},
    {SMELT__RACECHECK_KNOB},
};

static int check(const struct smelt__spec *spec, struct smelt__message *message) {
    return smelt__indexer_scoring_check(spec, message) ||
                   smelt__indexer_blocks_check(spec, "granularity", message)
               ? -1
               : 0;
}

const struct smelt__kernel_family smelt__indexer_scores_fwd = {
    .schema = {.name = "indexer_scores_fwd",
               .summary = "the lightning indexer's logits at selected slots",
               SMELT__KEYS(keys),
               .check = check},
    SMELT__VARIANTS({"sm90", smelt__indexer_scores_fwd_plan_sm90},
                    {"mma", smelt__indexer_scores_fwd_plan_mma}),
};
