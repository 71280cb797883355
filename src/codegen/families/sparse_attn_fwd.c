/*
 * The kernel family sparse_attn_fwd: its keys, and which variant a spec gets: sm90 wherever it can
 * be planned, else mma. Measured on an H200 it is faster at any number of heads, also where it pads
 * them to 64 or 128 (bench/). Asking for a variant by name gets that one or the reason why not.
 */

#include "codegen/families/sparse_attn_fwd.h"

static const struct smelt__key keys[] = {
    SMELT__SPARSE_ATTN_COMPUTED,
    {SMELT__VARIANT_KNOB, SMELT__TUNED},
    {SMELT__ORIENTATION_KNOB, SMELT__TUNED},
    {SMELT__KNOB("compact", "1: a row of slots is compacted to its valid ones first"),
     SMELT__AUTO_ONE_OF_FIXED(sm90, 1, 0, 1), SMELT__TUNED,
     .only_named = 1}, /* 0 wins on full lists alone */
    {SMELT__KNOB("block_keys", "KV rows of one step of the main loop"),
     SMELT__AUTO_ONE_OF_FIXED(sm90, 64, 16, 32, 64, 128), SMELT__TUNED},
    {SMELT__KNOB("stages", "key blocks in flight: the depth of the gather's ring"),
     SMELT__AUTO_RANGE(2, 4), SMELT__TUNED},
    {SMELT__KNOB("part_tiles", "tiles of 64 columns that are filled and freed together"),
     SMELT__AUTO_ONE_OF(2, 4), SMELT__TUNED, .variants = "sm90", .only_with = "orientation=keys"},
    {SMELT__KNOB("warps", "warps of a thread block"), SMELT__AUTO_ONE_OF(4, 8), SMELT__TUNED,
     .variants = "mma"},
    {SMELT__KNOB("blocks", "resident thread blocks a multiprocessor is compiled for"),
     SMELT__AUTO_RANGE_FIXED(sm90, 1, 1, 4), SMELT__TUNED_AT(1, 2, 3)},
    {SMELT__KNOB("pv_overlap", "k-steps of QK left when PV may begin"), SMELT__AUTO_RANGE(0, 26),
     SMELT__TUNED_AT(4, 10, 16, 22), .variants = "sm90", .only_with = "orientation=heads"},
    {SMELT__KNOB("output_registers", "of a thread that computes PV"), SMELT__AUTO_ONE_OF(160, 168),
     SMELT__TUNED, .variants = "sm90", .only_with = "orientation=heads"},
    {SMELT__KNOB("gather_registers",
                 "of a thread that gathers: up to 48 with heads as rows, from 64 on with keys"),
     SMELT__AUTO_ONE_OF(24, 32, 40, 48, 64, 72, 80, 88), SMELT__TUNED, .variants = "sm90"},
    {SMELT__RACECHECK_KNOB},
};

const struct smelt__kernel_family smelt__sparse_attn_fwd = {
    .schema = {.name = "sparse_attn_fwd",
               .summary = "forward pass of sparse attention: out and log-sum-exp",
               SMELT__KEYS(keys),
               .check = smelt__sparse_attn_check},
    /* The best first: sm90 wherever it can be planned (bench/). */
    SMELT__VARIANTS({"sm90", smelt__sparse_attn_fwd_plan_sm90},
                    {"mma", smelt__sparse_attn_fwd_plan_mma}),
};
