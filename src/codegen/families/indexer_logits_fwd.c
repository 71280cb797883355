/*
 * The kernel family indexer_logits_fwd: its keys, and which variant a spec gets. Asking for a
 * variant by name gets that one or the reason why not.
 */

#include "codegen/families/indexer_logits_fwd.h"
#include "codegen/families/indexer_keys.h"

static const struct smelt__key keys[] = {
    SMELT__INDEXER_SHAPE,
    SMELT__INDEXER_SUMS,
    SMELT__INDEXER_BLOCK_MAX,
    SMELT__INDEXER_STORED_LOGITS,
    {SMELT__KNOB("variant", "which instructions the kernel is built on"),
     .legal = "auto, mma, sm90, sm90_heads", SMELT__CHOICES("mma", "sm90", "sm90_heads")},
    {SMELT__KNOB("warps", "warps of a thread block"), SMELT__AUTO_ONE_OF(4, 8), SMELT__TUNED,
     .variants = "mma"},
    {SMELT__KNOB("blocks", "thread blocks resident at once"), SMELT__AUTO_RANGE(1, 4),
     SMELT__TUNED_AT(1, 2, 3), .variants = "mma"},
    {SMELT__KNOB("warp_keys", "keys of a warp"), SMELT__AUTO_ONE_OF(32, 64), SMELT__TUNED,
     .variants = "mma"},
    {SMELT__KNOB("block_queries", "queries of an item"), SMELT__AUTO_STEPS(8, 256, 8),
     SMELT__TUNED_AT(32, 64, 128, 256), .variants = "mma"},
    {SMELT__KNOB("stages", "parts of queries in flight"), SMELT__AUTO_RANGE(2, 4), SMELT__TUNED,
     .variants = "mma"},
    {SMELT__KNOB("warpgroups", "warpgroups that compute"), SMELT__AUTO_ONE_OF(2, 3), SMELT__TUNED,
     .variants = "sm90, sm90_heads"},
    {SMELT__KNOB("columns", "columns of a matrix product at most"),
     SMELT__AUTO_ONE_OF(64, 128, 192, 256), SMELT__TUNED_AT(128, 256), .variants = "sm90"},
    {SMELT__KNOB("racecheck", "1: for compute-sanitizer, every lane arrives at barriers"),
     SMELT__AUTO_ONE_OF(0, 1), .variants = "sm90, sm90_heads"},
};

const struct smelt__kernel_family smelt__indexer_logits_fwd = {
    .schema = {.name = "indexer_logits_fwd",
               .summary = "the lightning indexer's logits, windows masked",
               SMELT__KEYS(keys),
               .check = smelt__indexer_scoring_check},
    SMELT__VARIANTS({"sm90_heads", smelt__indexer_logits_fwd_plan_sm90_heads},
                    {"sm90", smelt__indexer_logits_fwd_plan_sm90},
                    {"mma", smelt__indexer_logits_fwd_plan_mma}),
};
