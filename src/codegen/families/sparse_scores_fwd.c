/*
 * The kernel family sparse_scores_fwd: its keys, and which variant a spec gets: sm90 wherever it
 * can be planned, else mma. Asking for a variant by name gets that one or the reason why not.
 *
 * A kernel serves every topk: nothing in it depends on how many slots there are.
 */
#include "codegen/families/sparse_scores_fwd.h"

static const struct smelt__key keys[] = {
    SMELT__SPARSE_ATTN_SHAPE,
    {SMELT__VARIANT_KNOB},
    {SMELT__KNOB("block_keys", "slots of a step"), SMELT__AUTO_ONE_OF(16, 32, 64, 128),
     SMELT__TUNED, .variants = "mma"},
    {SMELT__KNOB("stages", "key blocks in flight"), SMELT__AUTO_ONE_OF(2, 3), SMELT__TUNED,
     .variants = "mma"},
    {SMELT__KNOB("warps", "warps of a thread block"), SMELT__AUTO_ONE_OF(4, 8), SMELT__TUNED,
     .variants = "mma"},
    {SMELT__KNOB("blocks", "thread blocks resident at once"), SMELT__AUTO_ONE_OF(1, 2),
     SMELT__TUNED, .variants = "mma"},
    {SMELT__ORIENTATION_KNOB},
    {SMELT__KNOB("ring_tiles", "tiles of 64 columns in flight"), SMELT__AUTO_RANGE(2, 27),
     SMELT__TUNED_AT(10, 14, 18, 25), .variants = "sm90"},
    {SMELT__KNOB("query_buffers", "queries whose Q is in shared memory at once"),
     SMELT__AUTO_ONE_OF(1, 2), SMELT__TUNED, .variants = "sm90"},
    {SMELT__RACECHECK_KNOB},
};

const struct smelt__kernel_family smelt__sparse_scores_fwd = {
    .schema = {.name = "sparse_scores_fwd",
               .summary = "attention's probabilities at the selected slots, summed over the heads",
               SMELT__KEYS(keys),
               .check = smelt__sparse_attn_check},
    SMELT__VARIANTS({"sm90", smelt__sparse_scores_fwd_plan_sm90},
                    {"mma", smelt__sparse_scores_fwd_plan_mma}),
};
