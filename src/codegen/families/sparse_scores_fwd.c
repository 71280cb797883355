/*
 * The kernel family sparse_scores_fwd: its keys, and which variant a spec gets: sm90 wherever it
 * can be planned, else mma. Asking for a variant by name gets that one or the reason why not.
 *
 * A kernel serves every topk: nothing in it depends on how many slots there are.
 */
#include "codegen/families/sparse_scores_fwd.h"

#include "codegen/families/sparse_attn_keys.h"

static const char *const variant_names[] = {"mma", "sm90", NULL};
static const char *const orientations[] = {"heads", "keys", NULL};

static const struct smelt__key keys[] = {
    SMELT__SPARSE_ATTN_SHAPE,
    SMELT__NAMED_KNOB("variant", "auto, mma, sm90", "which instructions the kernel is built on",
                      variant_names),
    SMELT__KNOB("block_keys", "auto, 16, 32, 64, 128", "slots of a step, with mma", 16, 128),
    SMELT__KNOB("stages", "auto, 2, 3", "key blocks in flight, with mma", 2, 3),
    SMELT__KNOB("warps", "auto, 4, 8", "of a thread block, with mma", 4, 8),
    SMELT__KNOB("blocks", "auto, 1, 2", "thread blocks resident at once, with mma", 1, 2),
    SMELT__NAMED_KNOB("orientation", "auto, heads, keys", "what the matrices' rows are, with sm90",
                      orientations),
    SMELT__KNOB("ring_tiles", "auto, 2..27", "tiles of 64 columns in flight, with sm90", 2, 27),
    SMELT__KNOB("query_buffers", "auto, 1, 2",
                "queries whose Q is in shared memory at once, with sm90", 1, 2),
    SMELT__KNOB("racecheck", "auto, 0, 1",
                "1: for compute-sanitizer, every lane arrives at barriers: sm90", 0, 1),
};

static int check(const struct smelt__spec *spec, struct smelt__message *message) {
    static const int key_blocks[] = {16, 32, 64, 128}, warp_counts[] = {4, 8};
    return smelt__sparse_attn_check(spec, message) ||
                   smelt__check_one_of(spec, "block_keys", key_blocks, 4, message) ||
                   smelt__check_one_of(spec, "warps", warp_counts, 2, message)
               ? -1
               : 0;
}

static const struct smelt__tried tried[] = {
    {"block_keys", 0, 4, {16, 32, 64, 128}},
    {"stages", 0, 2, {2, 3}},
    {"warps", 0, 2, {4, 8}},
    {"blocks", 0, 2, {1, 2}},
    {"query_buffers", 0, 2, {1, 2}},
    {"ring_tiles", 0, 4, {10, 14, 18, 25}},
    {.name = NULL},
};

static const char *const mma_knobs[] = {"block_keys", "stages", "warps", "blocks", NULL};
static const char *const sm90_knobs[] = {"orientation", "ring_tiles", "query_buffers", "racecheck",
                                         NULL};

/* The best first. */
static const struct smelt__variant variants[] = {
    {"sm90", smelt__sparse_scores_fwd_plan_sm90, sm90_knobs},
    {"mma", smelt__sparse_scores_fwd_plan_mma, mma_knobs},
    {NULL, NULL, NULL},
};

const struct smelt__kernel_family smelt__sparse_scores_fwd = {
    .schema = {.name = "sparse_scores_fwd",
               .summary = "attention's probabilities at the selected slots, summed over the heads",
               .keys = keys,
               .key_count = sizeof keys / sizeof *keys,
               .check = check},
    .variants = variants,
    .tried = tried,
};
