/*
 * The kernel family indexer_logits_fwd: the plan of its variant mma. The comment at the head of
 * templates/indexer_logits_fwd.mma.cu explains the numbers.
 *
 * The rule. A warp keeps 64 keys in registers, which are 128 of them with rows of 256 bytes; two
 * warps a scheduler then hide one's ReLU and sum behind the other's products. They come as two
 * blocks of four warps, whose barriers do not meet. Data-centre GPUs from Hopper on multiply e4m3
 * by mma.sync as halves, which ptxas converts and keeps: 32 keys are as many as stay in registers.
 */
#include <limits.h>

#include "codegen/families/indexer_keys.h"
#include "codegen/families/indexer_logits_fwd.h"
#include "codegen/plan/limits.h"

enum {
    WARP = 32,            /* threads */
    GROUP_QUERIES = 8,    /* of one mma tile, which has two heads of each */
    STEP_BYTES = 32,      /* of a row in one mma */
    STAGE_HEADS = 8,      /* at most, of a group of queries in one stage */
    OTHER_REGISTERS = 40, /* operands of a step, addresses, loop state */
    ALIGNMENT = 1024,
    DEFAULT_WARPS = 4,
    DEFAULT_BLOCKS = 2,
    DEFAULT_WARP_KEYS = 64,
    CONVERTS = 9,          /* compute capabilities from it on, */
    CONVERTS_NO_MORE = 12, /* up to below this */
    CONVERTED_WARP_KEYS = 32,
    DEFAULT_QUERIES = 128,
    DEFAULT_STAGES = 3,
};

struct choice {
    int heads, row_bytes, fp8;
    int warps, blocks, warp_keys, block_queries, stages, stage_heads;
    int sum_heads, block_max;
};

/* The keys, the products of a tile, a logit for each key and query of the warp, weights, and with
 * fp8 the keys' scales. */
static int registers_needed(const struct choice *choice) {
    const int tiles = choice->warp_keys / 8;
    return tiles * choice->row_bytes / STEP_BYTES * 2 + tiles * 4 + tiles * 2 +
           choice->stage_heads + (choice->fp8 ? tiles * 2 : 0) + OTHER_REGISTERS;
}

static void add_regions(const struct choice *choice, struct smelt__plan *plan) {
    plan->region_count = 0;
    smelt__plan_add_region(plan, "QUERIES_OFFSET",
                           choice->stages * choice->stage_heads * GROUP_QUERIES * choice->row_bytes,
                           ALIGNMENT, "heads of eight queries, in each stage");
    if (choice->block_max > choice->warp_keys)
        smelt__plan_add_region(plan, "LARGEST_OFFSET",
                               ((choice->stage_heads - 1) / choice->sum_heads + 1) * choice->warps *
                                   GROUP_QUERIES * 4,
                               16, "the warps' largest logits, of each group of a part");
}

static void add_constants(const struct choice *choice, const struct smelt__spec *spec,
                          struct smelt__plan *plan) {
    struct smelt__indexer_logits_launch *const launch = (void *)plan->launch;
    launch->block_queries = choice->block_queries;
    launch->block_keys = choice->warps * choice->warp_keys;
    SMELT__PLAN_ADD(
        plan, spec, {"WARPS", "warps", choice->warps, "warps of a thread block"},
        {"WARP_KEYS", "warp_keys", choice->warp_keys, "keys that a warp keeps in registers"},
        {"BLOCK_QUERIES", "block_queries", launch->block_queries, "queries of an item"},
        {"STAGES", "stages", choice->stages, "parts of queries in flight"},
        {"BLOCK_KEYS", NULL, launch->block_keys, "keys of an item"},
        {"ROW_BYTES", NULL, choice->row_bytes, "bytes of a key, and of a head of a query"},
        {"STAGE_HEADS", NULL, choice->stage_heads, "heads of eight queries in one stage"},
        {"TENSOR_MAPS", NULL, launch->tensor_maps, "0: q and k are read without tensor maps"},
        {"PDL", NULL, plan->arch->pdl, "1: may be launched with PDL"});
    if (choice->block_max <= choice->warp_keys)
        smelt__plan_add(plan, "LARGEST_OFFSET", 0, SMELT__DERIVED, "none: a warp has whole blocks");
}

int smelt__indexer_logits_fwd_plan_mma(const struct smelt__spec *spec,
                                       const struct smelt__arch *arch, struct smelt__plan *plan,
                                       struct smelt__message *message) {
    struct smelt__excess excess = SMELT__NO_EXCESS;
    struct choice choice = {
        .heads = (int)smelt__spec_get(spec, "heads"),
        .fp8 = smelt__spec_get(spec, "dtype") == SMELT__INDEXER_FP8,
        .warps = smelt__spec_knob(spec, "warps", DEFAULT_WARPS),
        .blocks = smelt__spec_knob(spec, "blocks", DEFAULT_BLOCKS),
        .warp_keys = smelt__spec_knob(spec, "warp_keys", DEFAULT_WARP_KEYS),
        .block_queries = smelt__spec_knob(spec, "block_queries", DEFAULT_QUERIES),
        .stages = smelt__spec_knob(spec, "stages", DEFAULT_STAGES),
    };
    choice.sum_heads = choice.heads / (int)smelt__spec_get(spec, "groups");
    choice.block_max = (int)smelt__spec_get(spec, "block_max");
    if (smelt__indexer_refuse_fp8(spec, arch, message))
        return -1;
    if (choice.fp8 && arch->capability_major >= CONVERTS &&
        arch->capability_major < CONVERTS_NO_MORE &&
        smelt__spec_get(spec, "warp_keys") == SMELT__AUTO)
        choice.warp_keys = CONVERTED_WARP_KEYS;
    choice.row_bytes = smelt__indexer_row_bytes(spec);
    choice.stage_heads = choice.heads < STAGE_HEADS ? (choice.heads + 1) / 2 * 2 : STAGE_HEADS;
    add_regions(&choice, plan);
    /* Eight warps a multiprocessor by rule, whatever the knob warps says. */
    if (smelt__spec_get(spec, "blocks") == SMELT__AUTO)
        choice.blocks = DEFAULT_WARPS * DEFAULT_BLOCKS / choice.warps;
    if (!smelt__limits_hold(arch, choice.warps * WARP, choice.blocks, plan->shared_bytes,
                            registers_needed(&choice), &excess)) {
        smelt__excess_explain(&excess, spec, arch, "fewer stages or blocks",
                              "fewer warp_keys, warps or blocks", "", message);
        return -1;
    }
    smelt__indexer_logits_fwd_name(spec, plan);
    add_constants(&choice, spec, plan);
    smelt__plan_set_threads(plan, choice.warps * WARP, choice.blocks);
    plan->item = "tile";
    return 0;
}
