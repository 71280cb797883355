/*
 * The kernel family sparse_scores_fwd: the plan of its variant mma. The comment at the head of
 * templates/sparse_scores_fwd.mma.cu explains the numbers.
 *
 * The rule. As many heads at once as fit, 64 at most, since every part of the heads gathers the keys
 * again; for them the shapes below in order of preference; for each shape the formation of the warps
 * that reads least from shared memory: every warp that needs an operand row reads it once. If that
 * leaves warps without a tile, as where shared memory is short, the warps divide the depth.
 */
#include <limits.h>

#include "codegen/families/sparse_attn_mma.h"
#include "codegen/families/sparse_scores_fwd.h"

enum {
    TILE = SMELT__MMA_TILE,
    OTHER_REGISTERS = 44, /* addresses, loop state */
    SCORE_UNROLL = 8,     /* k-steps */
};

/* Preferred shapes of the pipeline, best first. */
static const struct smelt__pipeline_shape shapes[] = {{64, 3}, {64, 2}, {32, 3},  {32, 2},
                                                      {16, 3}, {16, 2}, {128, 2}, {128, 3}};

struct smelt__choice {
    struct smelt__mma_shape shape;
    int most_tiles, blocks, warps;
    struct smelt__pipeline_shape pipeline;
    struct smelt__score_warps scores;
};

static int ring_entries(const struct smelt__choice *choice) {
    return smelt__mma_ring_entries(&choice->pipeline, choice->warps);
}

static void add_regions(const struct smelt__choice *choice, struct smelt__plan *plan) {
    const int heads = choice->shape.tiles * TILE,
              rows = choice->pipeline.stages * choice->pipeline.block_keys;
    smelt__plan_add_region(plan, "QUERY_OFFSET", heads * choice->shape.dqk * 2,
                           SMELT__TILE_ALIGNMENT, "query tile");
    smelt__plan_add_region(plan, "LATENT_OFFSET", rows * choice->shape.dv * 2,
                           SMELT__TILE_ALIGNMENT, "key blocks, the first columns");
    smelt__plan_add_region(plan, "ROPE_OFFSET", rows * (choice->shape.dqk - choice->shape.dv) * 2,
                           SMELT__TILE_ALIGNMENT, "key blocks, the last columns");
    smelt__plan_add_region(plan, "OFFSETS_OFFSET", heads * 4, SMELT__SMALL_ALIGNMENT,
                           "what each head's p is divided by, as a power of two");
    smelt__plan_add_region(plan, "SUMS_OFFSET",
                           choice->scores.heads * choice->pipeline.block_keys * 4,
                           SMELT__SMALL_ALIGNMENT, "sums over a warp's heads");
    smelt__plan_add_region(plan, "PARTS_OFFSET",
                           (choice->scores.depth - 1) * heads * choice->pipeline.block_keys * 4,
                           SMELT__SMALL_ALIGNMENT, "partial scores");
    smelt__plan_add_region(plan, "SLOTS_OFFSET", 8 + 2 * 4, 16, "positions of the slots");
    smelt__plan_add_region(plan, "RING_OFFSET", ring_entries(choice) * 4, SMELT__SMALL_ALIGNMENT,
                           "KV row numbers of the key blocks to come");
    smelt__plan_add_region(plan, "COUNTS_OFFSET", choice->warps * 4, SMELT__SMALL_ALIGNMENT,
                           "valid slots that each warp found");
    smelt__plan_add_region(plan, "RANGE_OFFSET", 2 * 4, 8, "which items the launch takes");
}

/* Registers, an estimate: scores, two buffers of operands, the heads' offsets. */
static struct smelt__needs needs(const struct smelt__choice *choice,
                                 const struct smelt__arch *arch) {
    const int tiles = choice->shape.tiles / choice->scores.heads;
    const int pairs = choice->pipeline.block_keys / TILE / choice->scores.keys;
    (void)arch;
    return (struct smelt__needs){choice->warps * SMELT__WARP, choice->blocks,
                                 8 * tiles * pairs + 2 * 4 * (tiles + pairs) + 2 * tiles +
                                     OTHER_REGISTERS};
}

/* Rows of operands that the warps read for one key block. */
static long rows_read(const struct smelt__choice *choice) {
    return (long)choice->warps * (choice->shape.tiles * TILE / choice->scores.heads +
                                  choice->pipeline.block_keys / choice->scores.keys);
}

static int divide_heads(struct smelt__choice *choice) {
    smelt__mma_divide_heads(choice->most_tiles, &choice->shape);
    return 1;
}

static int complete_scores(struct smelt__choice *choice) {
    return smelt__score_warps_complete(&choice->scores, choice->warps, choice->pipeline.block_keys,
                                       &choice->shape);
}

/* More than 64 heads leave no shared memory for two stages. Warps divide the depth (split-K) only if
 * nothing else fits. */
static const struct smelt__axis axes[] = {
    SMELT__AXIS(most_tiles, NULL, divide_heads, 4, 3, 2, 1),
    SMELT__AXIS(blocks, "blocks", NULL, 1),
    SMELT__AXIS_SHAPES(pipeline, NULL, shapes),
    SMELT__AXIS(warps, "warps", NULL, 8, 4),
    SMELT__AXIS(scores.depth, NULL, NULL, 1, 2, 4),
    /* by cost: */
    SMELT__AXIS(scores.heads, NULL, complete_scores, 1, 2, 4, 8),
};

static void begin(struct smelt__choice *choice, const struct smelt__spec *spec) {
    *choice = (struct smelt__choice){.shape = smelt__mma_shape_of(spec)};
}

static const struct smelt__search search = {
    SMELT__AXES(axes),
    .by_cost = 1,
    .begin = begin,
    .add_regions = add_regions,
    .needs = needs,
    .cost = rows_read,
    .less_shared = "fewer block_keys, stages or blocks",
    .less_registers = "fewer blocks or block_keys or more warps",
    .legal = "every warp needs whole tiles of 16 heads and 16 slots",
};

static void add_constants(const struct smelt__choice *choice, const struct smelt__spec *spec,
                          struct smelt__plan *plan) {
    smelt__mma_add_columns(&choice->shape, plan);
    SMELT__PLAN_ADD(
        plan, spec, {"BLOCK_KEYS", "block_keys", choice->pipeline.block_keys, "slots of a step"},
        {"STAGES", "stages", choice->pipeline.stages, "key blocks in flight"},
        {"WARPS", "warps", choice->warps, "warps of a thread block"},
        {"COMPACT", NULL, 0, "0: slots keep their positions"},
        {"TOPK", NULL, INT_MAX, "every valid slot counts"},
        {"BLOCK_HEADS", NULL, choice->shape.tiles * TILE, "heads computed at once"},
        {"RAGGED_HEADS", NULL, 0, "0: all of a part's tiles are computed"},
        {"ROPE_STAGES", NULL, choice->shape.dqk > choice->shape.dv ? choice->pipeline.stages : 0,
         "buffers for the last columns"},
        {"SCORE_HEAD_GROUPS", NULL, choice->scores.heads, "warps side by side over the heads"},
        {"SCORE_KEY_GROUPS", NULL, choice->scores.keys, "warps side by side over the slots"},
        {"SCORE_DEPTH_GROUPS", NULL, choice->scores.depth,
         "warps that divide the depth and compute partial sums"},
        {"QUERY_IN_REGISTERS", NULL, 0, "0: query fragments are loaded anew"},
        {"SCORE_UNROLL", NULL, SCORE_UNROLL, "k-steps unrolled"},
        {"RING_ENTRIES", NULL, ring_entries(choice), "row numbers the ring holds, a power of two"});
}

int smelt__sparse_scores_fwd_plan_mma(const struct smelt__spec *spec,
                                      const struct smelt__arch *arch, struct smelt__plan *plan,
                                      struct smelt__message *message) {
    struct smelt__choice choice;
    if (smelt__mma_plan(&search, spec, arch, &choice, plan, message))
        return -1;
    smelt__sparse_scores_fwd_name(spec, plan);
    add_constants(&choice, spec, plan);
    smelt__plan_set_threads(plan, choice.warps * SMELT__WARP, choice.blocks);
    plan->item = "query";
    return 0;
}
