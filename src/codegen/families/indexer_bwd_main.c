/*
 * The kernel family indexer_bwd_main: dq, dweights, and the sums of dk. Nothing in it depends on
 * topk: the kernel ahead of it leaves a plain list of keys, with their gradients, for each group of
 * queries.
 */

#include "codegen/families/indexer_bwd_main.h"
#include "codegen/families/indexer_keys.h"
#include "codegen/families/sparse_attn_keys.h"

static const char *const variant_names[] = {"mma", "sm90", NULL};

static const struct smelt__key keys[] = {
    SMELT__INDEXER_HEADS,
    SMELT__SPARSE_ATTN_DETERMINISTIC,
    SMELT__NAMED_KNOB("variant", "auto, mma, sm90", "which instructions the kernel is built on",
                      variant_names),
    SMELT__KNOB("group", "auto, 1, 2, 4, 8", "queries whose heads share a tile", 1, 8),
    SMELT__KNOB("stages", "auto, 2..4", "key blocks in flight, with mma", 2, 4),
    SMELT__KNOB("blocks", "auto, 1..4", "thread blocks resident at once, with mma", 1, 4),
    SMELT__KNOB("racecheck", "auto, 0, 1",
                "1: for compute-sanitizer, every lane arrives at barriers: sm90", 0, 1),
    SMELT__KNOB("exact_groups", "auto, 1..2097152",
                "groups whose sums of dk are exact at once, with deterministic=1", 1,
                SMELT__INDEXER_BWD_MOST_EXACT),
};

static int check(const struct smelt__spec *spec, struct smelt__message *message) {
    static const int groups[] = {1, 2, 4, 8};
    if (smelt__indexer_check(spec, message) ||
        smelt__check_one_of(spec, "group", groups, 4, message))
        return -1;
    if (smelt__spec_get(spec, "deterministic") || !smelt__spec_knob(spec, "exact_groups", 0))
        return 0;
    smelt__message_set(message, "%s: exact_groups is of deterministic=1 alone", spec->schema->name);
    return -1;
}

static const struct smelt__tried tried[] = {
    {"variant", 0, 2, {SMELT__INDEXER_BWD_MMA, SMELT__INDEXER_BWD_SM90}},
    {"group", 0, 4, {1, 2, 4, 8}},
    {"stages", 0, 3, {2, 3, 4}},
    {"blocks", 0, 3, {1, 2, 3}},
    {.name = NULL},
};

static const char *const mma_knobs[] = {"stages", "blocks", NULL};
static const char *const sm90_knobs[] = {"racecheck", NULL};

/* The best first. */
static const struct smelt__variant variants[] = {
    {"sm90", smelt__indexer_bwd_main_plan_sm90, sm90_knobs},
    {"mma", smelt__indexer_bwd_main_plan_mma, mma_knobs},
    {NULL, NULL, NULL},
};

const struct smelt__kernel_family smelt__indexer_bwd_main = {
    .schema = {.name = "indexer_bwd_main",
               .summary = "backward pass of the lightning indexer: dq, dweights, and sums of dk",
               .keys = keys,
               .key_count = sizeof keys / sizeof *keys,
               .check = check},
    .variants = variants,
    .tried = tried,
};
