/*
 * The kernel family sparse_attn_fwd: its keys, and which variant a spec gets: sm90 wherever it can
 * be planned, else mma. Measured on an H200 it is faster at any number of heads, also where it pads
 * them to 64 or 128 (bench/). Asking for a variant by name gets that one or the reason why not.
 */

#include "codegen/families/sparse_attn_fwd.h"
#include "codegen/families/sparse_attn_keys.h"

static const char *const variant_names[] = {"mma", "sm90", NULL};
static const char *const orientations[] = {"heads", "keys", NULL};

static const struct smelt__key keys[] = {
    SMELT__SPARSE_ATTN_COMPUTED,
    SMELT__NAMED_KNOB("variant", "auto, mma, sm90", "which instructions the kernel is built on",
                      variant_names),
    SMELT__NAMED_KNOB("orientation", "auto, heads, keys", "what the matrices' rows are, with sm90",
                      orientations),
    SMELT__KNOB("compact", "auto, 0, 1", "1: a row of slots is compacted to its valid ones first",
                0, 1),
    SMELT__KNOB("block_keys", "auto, 16, 32, 64, 128", "KV rows of one step of the main loop", 16,
                128),
    SMELT__KNOB("stages", "auto, 2..4", "key blocks in flight: the depth of the gather's ring", 2,
                4),
    SMELT__KNOB("part_tiles", "auto, 2, 4",
                "tiles of 64 columns that are filled and freed together: sm90, keys as rows", 2, 4),
    SMELT__KNOB("warps", "auto, 4, 8", "warps of a thread block", 4, 8),
    SMELT__KNOB("blocks", "auto, 1..4", "resident thread blocks a multiprocessor is compiled for",
                1, 4),
    SMELT__KNOB("turn_steps", "auto, 0..26",
                "k-steps of QK left when PV may begin: sm90, heads as rows", 0, 26),
    SMELT__KNOB("output_registers", "auto, 160, 168",
                "of a thread that computes PV: sm90, heads as rows", 160, 168),
    SMELT__KNOB("gather_registers",
                "auto, 24..88 by eights: 24..48 with heads as rows, 64..88 with keys",
                "of a thread that gathers, with sm90", 24, 88),
    SMELT__KNOB("racecheck", "auto, 0, 1",
                "1: for compute-sanitizer, every lane arrives at barriers: sm90", 0, 1),
};

static int check(const struct smelt__spec *spec, struct smelt__message *message) {
    static const int key_blocks[] = {16, 32, 64, 128}, warp_counts[] = {4, 8},
                     part_widths[] = {2, 4};
    return smelt__sparse_attn_check(spec, message) ||
                   smelt__check_one_of(spec, "block_keys", key_blocks, 4, message) ||
                   smelt__check_one_of(spec, "warps", warp_counts, 2, message) ||
                   smelt__check_one_of(spec, "part_tiles", part_widths, 2, message)
               ? -1
               : 0;
}

static const struct smelt__tried tried[] = {
    {"variant", 0, 2, {SMELT__SPARSE_ATTN_MMA, SMELT__SPARSE_ATTN_SM90}},
    {"orientation", 0, 2, {SMELT__SPARSE_ATTN_HEADS, SMELT__SPARSE_ATTN_KEYS}},
    {"compact", 1, 2, {0, 1}}, /* 0 wins on full lists alone */
    {"block_keys", 0, 4, {16, 32, 64, 128}},
    {"stages", 0, 3, {2, 3, 4}},
    {"part_tiles", 0, 2, {2, 4}},
    {"warps", 0, 2, {4, 8}},
    {"blocks", 0, 3, {1, 2, 3}},
    {"turn_steps", 0, 4, {4, 10, 16, 22}},
    {"output_registers", 0, 2, {160, 168}},
    {"gather_registers", 0, 7, {24, 32, 40, 48, 64, 72, 80}},
    {.name = NULL},
};

static const char *const sm90_knobs[] = {
    "orientation",      "part_tiles", "turn_steps", "output_registers",
    "gather_registers", "racecheck",  NULL};

/* The best first: sm90 wherever it can be planned (bench/). */
static const struct smelt__variant variants[] = {
    {"sm90", smelt__sparse_attn_fwd_plan_sm90, sm90_knobs},
    {"mma", smelt__sparse_attn_fwd_plan_mma, NULL},
    {NULL, NULL, NULL},
};

const struct smelt__kernel_family smelt__sparse_attn_fwd = {
    .schema = {.name = "sparse_attn_fwd",
               .summary = "forward pass of sparse attention: out and log-sum-exp",
               .keys = keys,
               .key_count = sizeof keys / sizeof *keys,
               .check = check},
    .variants = variants,
    .tried = tried,
};
