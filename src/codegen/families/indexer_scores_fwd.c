/*
 * The kernel family indexer_scores_fwd: its keys, and which variant a spec gets. Asking for a
 * variant by name gets that one or the reason why not.
 */
#include "codegen/families/indexer_scores_fwd.h"

#include "codegen/families/indexer_keys.h"

static const char *const variant_names[] = {"mma", "sm90", NULL};

static const struct smelt__key keys[] = {
    SMELT__INDEXER_HEADS,
    SMELT__NAMED_KNOB("variant", "auto, mma, sm90", "which instructions the kernel is built on",
                      variant_names),
    SMELT__KNOB("warps", "auto, 4, 8", "warps of a thread block, with mma", 4, 8),
    SMELT__KNOB("blocks", "auto, 1..3", "thread blocks resident at once, with mma", 1, 3),
    SMELT__KNOB("warp_keys", "auto, 16, 32", "slots that a warp looks at together, with mma", 16,
                32),
    SMELT__KNOB("groups", "auto, 2..4", "warpgroups that compute, with sm90", 2, 4),
    SMELT__KNOB("block_keys", "auto, 64, 128", "slots of a block, with sm90", 64, 128),
    SMELT__KNOB("stages", "auto, 2..8",
                "blocks of slots that each of these has in flight, with sm90", 2, 8),
    SMELT__KNOB("racecheck", "auto, 0, 1",
                "1: for compute-sanitizer, every lane arrives at barriers: sm90", 0, 1),
};

static int check(const struct smelt__spec *spec, struct smelt__message *message) {
    static const int warp_counts[] = {4, 8}, key_counts[] = {16, 32}, block_counts[] = {64, 128};
    return smelt__indexer_check(spec, message) ||
                   smelt__check_one_of(spec, "block_keys", block_counts, 2, message) ||
                   smelt__check_one_of(spec, "warps", warp_counts, 2, message) ||
                   smelt__check_one_of(spec, "warp_keys", key_counts, 2, message)
               ? -1
               : 0;
}

static const struct smelt__tried tried[] = {
    {"warps", 0, 2, {4, 8}},
    {"blocks", 0, 3, {1, 2, 3}},
    {"warp_keys", 0, 2, {16, 32}},
    {"groups", 0, 3, {2, 3, 4}},
    {"block_keys", 0, 2, {64, 128}},
    {"stages", 0, 3, {2, 3, 4}},
    {.name = NULL},
};

static const char *const mma_knobs[] = {"warps", "blocks", "warp_keys", NULL};
static const char *const sm90_knobs[] = {"groups", "block_keys", "stages", "racecheck", NULL};

/* The best first. */
static const struct smelt__variant variants[] = {
    {"sm90", smelt__indexer_scores_fwd_plan_sm90, sm90_knobs},
    {"mma", smelt__indexer_scores_fwd_plan_mma, mma_knobs},
    {NULL, NULL, NULL},
};

const struct smelt__kernel_family smelt__indexer_scores_fwd = {
    .schema = {.name = "indexer_scores_fwd",
               .summary = "the lightning indexer's logits at selected slots",
               .keys = keys,
               .key_count = sizeof keys / sizeof *keys,
               .check = check},
    .variants = variants,
    .tried = tried,
};
