/* The kernel families sparse_gqa_fwd and sparse_gqa_bwd: their keys and variants. */
#include "codegen/families/sparse_gqa.h"
#include "codegen/families/sparse_gqa_block.h"
#include "codegen/families/sparse_gqa_keys.h"

/* ---- the family ------------------------------------------------------------------------------ */

static const struct smelt__key keys[] = {
    SMELT__SPARSE_GQA_SHAPE,
    SMELT__SPARSE_GQA_SINK,
    SMELT__SPARSE_GQA_UNITE_KEY,
    {SMELT__VARIANT_KNOB, SMELT__TUNED},
    SMELT__SPARSE_GQA_MMA_KNOBS,
    {SMELT__KNOB("consumers", "warpgroups that compute"), SMELT__AUTO_ONE_OF(2, 3), SMELT__TUNED,
     .variants = "sm90", .only_with = "granularity=64,128"},
    {SMELT__KNOB("segment", "queries of an item"), SMELT__AUTO_RANGE(1, 65536), .variants = "sm90",
     .only_with = "granularity=64,128"},
    SMELT__SPARSE_GQA_PART_TILES,
    {SMELT__KNOB("item_queries", "queries of an item, whose lists are united; with unite=1"),
     SMELT__AUTO_ONE_OF(1, 2, 4), SMELT__TUNED, .variants = "sm90",
     .only_with = "granularity=1,4,16"},
    {SMELT__RACECHECK_KNOB},
};

const struct smelt__kernel_family smelt__sparse_gqa_fwd = {
    .schema = {.name = "sparse_gqa_fwd",
               .summary = "forward pass of sparse attention for grouped heads",
               SMELT__KEYS(keys),
               .check = smelt__sparse_gqa_check},
    SMELT__VARIANTS({"sm90", smelt__sparse_gqa_fwd_plan_sm90},
                    {"mma", smelt__sparse_gqa_fwd_plan_mma}),
};

static const struct smelt__key grad_keys[] = {
    SMELT__SPARSE_GQA_SHAPE,     {SMELT__VARIANT_KNOB, SMELT__TUNED},
    SMELT__SPARSE_GQA_MMA_KNOBS, SMELT__SPARSE_GQA_PART_TILES,
    {SMELT__RACECHECK_KNOB},
};

static const struct smelt__variant grad_variants[] = {
    {"sm90", smelt__sparse_gqa_bwd_plan_sm90},
    {"mma", smelt__sparse_gqa_bwd_plan_mma},
    {NULL, NULL},
};

const struct smelt__kernel_family smelt__sparse_gqa_bwd = {
    .schema = {.name = "sparse_gqa_bwd",
               .summary = "dq of sparse attention for grouped heads",
               SMELT__KEYS(grad_keys),
               .check = smelt__sparse_gqa_check},
    .variants = grad_variants,
};
