/*
 * The kernel family sparse_attn_bwd: dq and the sums of dkv. Its keys, and which variant a spec
 * gets: sm90 wherever it can be planned, else mma. Nothing in it depends on topk, the sink or
 * buckets: the kernels ahead of it leave a plain list of keys for each group of queries, and for
 * each row what its softmax is divided by.
 */

#include "codegen/families/sparse_attn_bwd.h"
#include "codegen/families/sparse_attn_keys.h"

static const char *const variant_names[] = {"mma", "sm90", NULL};

static const struct smelt__key keys[] = {
    SMELT__SPARSE_ATTN_SHAPE,
    SMELT__SPARSE_ATTN_DETERMINISTIC,
    SMELT__NAMED_KNOB("variant", "auto, mma, sm90", "which instructions the kernel is built on",
                      variant_names),
    SMELT__KNOB("block_keys", "auto, 16, 32, 64", "KV rows of one step of the main loop", 16, 64),
    SMELT__KNOB("stages", "auto, 1..3", "key blocks in flight, with mma", 1, 3),
    SMELT__KNOB("warps", "auto, 4, 8", "warps of a thread block, with mma", 4, 8),
    SMELT__KNOB("blocks", "auto, 1..4", "thread blocks resident at once, with mma", 1, 4),
    SMELT__KNOB("block_heads", "auto, 16, 32, 48, 64", "heads of a thread block, with mma", 16, 64),
    SMELT__KNOB("group", "auto, 1, 2, 4, 8",
                "queries whose rows share a tile: few heads, with sm90", 1,
                SMELT__SPARSE_ATTN_BWD_MOST_GROUP),
    SMELT__KNOB(
        "pairs", "auto, 0, 1",
        "1: thread blocks of a query's halves add up dkv in pairs: 65 to 128 heads, with sm90", 0,
        1),
    SMELT__KNOB("racecheck", "auto, 0, 1",
                "1: for compute-sanitizer, every lane arrives at barriers: sm90", 0, 1),
};

static int check(const struct smelt__spec *spec, struct smelt__message *message) {
    static const int key_blocks[] = {16, 32, 64}, warp_counts[] = {4, 8},
                     head_blocks[] = {16, 32, 48, 64}, groups[] = {1, 2, 4, 8};
    return smelt__sparse_attn_check(spec, message) ||
                   smelt__check_one_of(spec, "block_keys", key_blocks, 3, message) ||
                   smelt__check_one_of(spec, "warps", warp_counts, 2, message) ||
                   smelt__check_one_of(spec, "block_heads", head_blocks, 4, message) ||
                   smelt__check_one_of(spec, "group", groups, 4, message)
               ? -1
               : 0;
}

static const struct smelt__tried tried[] = {
    {"variant", 0, 2, {SMELT__SPARSE_ATTN_BWD_MMA, SMELT__SPARSE_ATTN_BWD_SM90}},
    {"block_keys", 0, 3, {16, 32, 64}},
    {"stages", 0, 3, {1, 2, 3}},
    {"warps", 0, 2, {4, 8}},
    {"blocks", 0, 2, {1, 2}},
    {"block_heads", 0, 4, {16, 32, 48, 64}},
    {"group", 0, 4, {1, 2, 4, 8}},
    {.name = NULL},
};

static const char *const mma_knobs[] = {"stages", "warps", "blocks", "block_heads", NULL};
static const char *const sm90_knobs[] = {"group", "pairs", "racecheck", NULL};

/* The best first. */
static const struct smelt__variant variants[] = {
    {"sm90", smelt__sparse_attn_bwd_plan_sm90, sm90_knobs},
    {"mma", smelt__sparse_attn_bwd_plan_mma, mma_knobs},
    {NULL, NULL, NULL},
};

const struct smelt__kernel_family smelt__sparse_attn_bwd = {
    .schema = {.name = "sparse_attn_bwd",
               .summary = "backward pass of sparse attention: dq, and sums of dkv",
               .keys = keys,
               .key_count = sizeof keys / sizeof *keys,
               .check = check},
    .variants = variants,
    .tried = tried,
};
