/*
 * The kernel family indexer_logits_fwd: its keys, and which variant a spec gets. Asking for a
 * variant by name gets that one or the reason why not.
 */

#include "codegen/families/indexer_logits_fwd.h"
#include "codegen/families/indexer_keys.h"

static const char *const variant_names[] = {"mma", "sm90", NULL};

static const struct smelt__key keys[] = {
    SMELT__INDEXER_SHAPE,
    SMELT__NAMED_KNOB("variant", "auto, mma, sm90", "which instructions the kernel is built on",
                      variant_names),
    SMELT__KNOB("warps", "auto, 4, 8", "warps of a thread block, with mma", 4, 8),
    SMELT__KNOB("blocks", "auto, 1..4", "thread blocks resident at once, with mma", 1, 4),
    SMELT__KNOB("warp_keys", "auto, 32, 64", "keys of a warp, with mma", 32, 64),
    SMELT__KNOB("block_queries", "auto, 8..256 by eights", "queries of an item, with mma", 8, 256),
    SMELT__KNOB("stages", "auto, 2..4", "parts of queries in flight, with mma", 2, 4),
    SMELT__KNOB("groups", "auto, 2, 3", "warpgroups that compute, with sm90", 2, 3),
    SMELT__KNOB("columns", "auto, 64, 128, 192, 256",
                "columns of a matrix product at most, with sm90", 64, 256),
    SMELT__KNOB("racecheck", "auto, 0, 1",
                "1: for compute-sanitizer, every lane arrives at barriers: sm90", 0, 1),
};

static int check(const struct smelt__spec *spec, struct smelt__message *message) {
    static const int warp_counts[] = {4, 8}, key_counts[] = {32, 64},
                     column_counts[] = {64, 128, 192, 256};
    const int64_t queries = smelt__spec_get(spec, "block_queries");
    if (queries != SMELT__AUTO && queries % 8 != 0)
        return smelt__refuse_value(spec, "block_queries", message);
    return smelt__indexer_check(spec, message) ||
                   smelt__check_one_of(spec, "warps", warp_counts, 2, message) ||
                   smelt__check_one_of(spec, "warp_keys", key_counts, 2, message) ||
                   smelt__check_one_of(spec, "columns", column_counts, 4, message)
               ? -1
               : 0;
}

static const struct smelt__tried tried[] = {
    {"warps", 0, 2, {4, 8}},       {"blocks", 0, 3, {1, 2, 3}},
    {"warp_keys", 0, 2, {32, 64}}, {"block_queries", 0, 4, {32, 64, 128, 256}},
    {"stages", 0, 3, {2, 3, 4}},   {"groups", 0, 2, {2, 3}},
    {"columns", 0, 2, {128, 256}}, {.name = NULL},
};

static const char *const mma_knobs[] = {"warps",         "blocks", "warp_keys",
                                        "block_queries", "stages", NULL};
static const char *const sm90_knobs[] = {"groups", "columns", "racecheck", NULL};

/* The best first. */
static const struct smelt__variant variants[] = {
    {"sm90", smelt__indexer_logits_fwd_plan_sm90, sm90_knobs},
    {"mma", smelt__indexer_logits_fwd_plan_mma, mma_knobs},
    {NULL, NULL, NULL},
};

const struct smelt__kernel_family smelt__indexer_logits_fwd = {
    .schema = {.name = "indexer_logits_fwd",
               .summary = "the lightning indexer's logits, windows masked",
               .keys = keys,
               .key_count = sizeof keys / sizeof *keys,
               .check = check},
    .variants = variants,
    .tried = tried,
};
