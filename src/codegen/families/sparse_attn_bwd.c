/*
 * The kernel family sparse_attn_bwd: dq and the sums of dkv. Its keys, and which variant a spec
 * gets: sm90 wherever it can be planned, else mma. It does not depend on topk, the sink or
 * buckets: the kernels before it write a plain list of keys for each group of queries, and the
 * softmax denominator of each row.
 */

#include "codegen/families/sparse_attn_bwd.h"
#include "codegen/families/sparse_attn_keys.h"

static const struct smelt__key keys[] = {
    SMELT__SPARSE_ATTN_SHAPE,
    {SMELT__DETERMINISTIC_KEY},
    {SMELT__VARIANT_KNOB, SMELT__TUNED},
    {SMELT__KNOB("block_keys", "KV rows of one step of the main loop"),
     SMELT__AUTO_ONE_OF_FIXED(sm90, 64, 16, 32, 64), SMELT__TUNED},
    {SMELT__KNOB("stages", "key blocks in flight"), SMELT__AUTO_RANGE(1, 3), SMELT__TUNED,
     .variants = "mma"},
    {SMELT__KNOB("warps", "warps of a thread block"), SMELT__AUTO_ONE_OF(4, 8), SMELT__TUNED,
     .variants = "mma"},
    {SMELT__KNOB("blocks", "thread blocks resident at once"), SMELT__AUTO_RANGE(1, 4),
     SMELT__TUNED_AT(1, 2), .variants = "mma"},
    {SMELT__KNOB("block_heads", "heads of a thread block"), SMELT__AUTO_ONE_OF(16, 32, 48, 64),
     SMELT__TUNED, .variants = "mma"},
    {SMELT__KNOB("group", "queries whose rows share a tile: few heads"),
     SMELT__AUTO_ONE_OF(1, 2, 4, 8), SMELT__TUNED, .variants = "sm90"},
    {SMELT__KNOB("pairs",
                 "1: thread blocks of a query's halves add up dkv in pairs: 65 to 128 heads"),
     SMELT__AUTO_ONE_OF(0, 1), .variants = "sm90"},
    {SMELT__RACECHECK_KNOB},
};

const struct smelt__kernel_family smelt__sparse_attn_bwd = {
    .schema = {.name = "sparse_attn_bwd",
               .summary = "backward pass of sparse attention: dq, and sums of dkv",
               SMELT__KEYS(keys),
               .check = smelt__sparse_attn_check},
    SMELT__VARIANTS({"sm90", smelt__sparse_attn_bwd_plan_sm90},
                    {"mma", smelt__sparse_attn_bwd_plan_mma}),
};
