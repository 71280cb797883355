/*
 * The kernel family sparse_attn_bwd: the plan of its variant mma. The comment at the head of
 * templates/sparse_attn_bwd.mma.cu explains the numbers.
 *
 * The rule. Heads are divided evenly, in tiles of 16, into the fewest blocks of at most 64 that fit
 * with key blocks of 32 or 64 (16 when none of two tiles does), since every block of heads gathers the
 * keys and adds to dkv again. For these the rule tries the shapes below in order of preference, and
 * for each every formation of the warps that computes the scores; of the formations that fit, it takes
 * the one that moves the fewest bytes through shared memory.
 */
#include "codegen/families/sparse_attn_bwd.h"
#include "codegen/families/sparse_attn_keys.h"
#include "codegen/families/sparse_attn_mma.h"

enum {
    TILE = SMELT__MMA_TILE,
    UNIT_COLUMNS = 32,      /* of dKV */
    OTHER_REGISTERS = 40,   /* addresses, loop state */
    UNIT_REGISTERS = 23,    /* the same where a unit of dKV is computed */
    LATE_REGISTERS = 9,     /* added from BLACKWELL on, whose assembler uses more */
    ROW_REGISTERS = 20,     /* the same where a unit is stored as partial rows */
    MUCH_OUTPUT = 96,       /* registers of dQ that leave few for a unit's partial rows */
    WEIGHT_ROW_BYTES = 128, /* at least: the swizzle needs them */
    HOPPER = 9,             /* compute capability: from it on, four values are added at once */
    BLACKWELL = 10
};

/* Preferred shapes of the pipeline, best first. Longer key blocks share operands among more keys,
 * above all Q and dO in dKV, and the fixed cost of the barriers. One stage does: its gather is
 * hidden behind dKV; a second one spares a barrier. */
static const struct smelt__pipeline_shape shapes[] = {{64, 2}, {64, 1}, {32, 2}, {32, 1}, {64, 3},
                                                      {32, 3}, {16, 2}, {16, 1}, {16, 3}};

/* Lower bounds, tried in this order: tiles of heads of a thread block, and keys of a key block. Key blocks
 * of 16 are preferred to thread blocks with a single tile of heads. */
static const struct {
    int tiles, keys;
} least[] = {{2, 2 * TILE}, {2, TILE}, {1, 2 * TILE}, {1, TILE}};

struct smelt__choice {
    struct smelt__mma_shape shape;
    int deterministic, blocks_asked, heads_asked;
    int least, most_tiles, blocks, warps;
    struct smelt__pipeline_shape pipeline;
    int most_unit_tiles, latent_key_tiles, rope_key_tiles;
    struct smelt__score_warps scores;
};

static int block_heads(const struct smelt__choice *choice) {
    return choice->shape.tiles * TILE;
}

static int rope_width(const struct smelt__choice *choice) {
    return choice->shape.dqk - choice->shape.dv;
}

static int at_least(int value, int bound) {
    return value > bound ? value : bound;
}

/* Slots for key numbers: one for each block whose rows are in flight, one for the block whose
 * numbers are, one for the block being computed. A power of two. */
static int entry_slots(const struct smelt__choice *choice) {
    return choice->pipeline.stages > 2 ? 8 : 4;
}

static int sum_bytes(const struct smelt__choice *choice) {
    return (choice->scores.depth - 1) * block_heads(choice) * choice->pipeline.block_keys * 8;
}

static void add_regions(const struct smelt__choice *choice, struct smelt__plan *plan) {
    const int heads = block_heads(choice);
    smelt__plan_add_region(plan, "QUERY_OFFSET", heads * choice->shape.dqk * 2,
                           SMELT__TILE_ALIGNMENT, "query tile; at the end the tile of dq");
    smelt__plan_add_region(plan, "GRAD_OFFSET", heads * choice->shape.dv * 2, SMELT__TILE_ALIGNMENT,
                           "tile of grad_out");
    smelt__plan_add_region(plan, "KEYS_OFFSET",
                           choice->pipeline.stages * choice->pipeline.block_keys *
                               choice->shape.dqk * 2,
                           SMELT__TILE_ALIGNMENT, "key blocks");
    smelt__plan_add_region(
        plan, "WEIGHTS_OFFSET",
        at_least(heads * at_least(choice->pipeline.block_keys * 4, WEIGHT_ROW_BYTES),
                 sum_bytes(choice)),
        SMELT__TILE_ALIGNMENT, "rows of P and dS, bf16; before, partial sums of S and dP, fp32");
    smelt__plan_add_region(plan, "STATISTICS_OFFSET", heads * 8, SMELT__SMALL_ALIGNMENT,
                           "base and delta of each row");
    smelt__plan_add_region(plan, "ITEM_OFFSET", 5 * 4, 16, "which query and heads this is");
    smelt__plan_add_region(plan, "ENTRIES_OFFSET",
                           entry_slots(choice) * choice->pipeline.block_keys * 4,
                           SMELT__SMALL_ALIGNMENT, "numbers of keys");
}

static int score_tiles(const struct smelt__choice *choice) {
    return choice->shape.tiles / choice->scores.heads;
}

static int score_pairs(const struct smelt__choice *choice) {
    return choice->pipeline.block_keys / TILE / choice->scores.keys;
}

/* Registers of dQ in a thread. */
static int output_registers(const struct smelt__choice *choice) {
    return block_heads(choice) * choice->shape.dqk / (choice->warps * SMELT__WARP);
}

/* An estimate: dQ throughout, and the largest need of the three products. The scores have two
 * products and two buffers of operands, the others one. */
static struct smelt__needs needs(const struct smelt__choice *choice,
                                 const struct smelt__arch *arch) {
    const int scores = 16 * score_tiles(choice) * score_pairs(choice) +
                       2 * (8 * score_tiles(choice) + 4 * score_pairs(choice));
    const int output = 4 * choice->shape.tiles + 4;
    const int dkv = 20 * choice->latent_key_tiles + 8;
    const int more = choice->deterministic                 ? ROW_REGISTERS
                     : arch->capability_major >= BLACKWELL ? LATE_REGISTERS
                                                           : 0;
    const int unit = UNIT_REGISTERS + more;
    return (struct smelt__needs){
        choice->warps * SMELT__WARP, choice->blocks,
        output_registers(choice) +
            at_least(at_least(scores, output) + OTHER_REGISTERS, dkv + unit)};
}

/* Bytes of shared memory that the scores' warps read and write for one key block. */
static long score_traffic(const struct smelt__choice *choice) {
    const long heads = (long)score_tiles(choice) * TILE, keys = (long)score_pairs(choice) * TILE;
    const long operands =
        (2 * heads + keys) * choice->shape.dv + (heads + keys) * rope_width(choice);
    return choice->warps * operands * 2 / choice->scores.depth + 2L * sum_bytes(choice);
}

static int divide_heads(struct smelt__choice *choice) {
    smelt__mma_divide_heads(choice->most_tiles, &choice->shape);
    return choice->most_tiles >= least[choice->least].tiles &&
           (!choice->heads_asked || choice->heads_asked == block_heads(choice));
}

static int blocks_legal(struct smelt__choice *choice) {
    return choice->blocks_asked || choice->blocks == 1 || choice->shape.tiles == 1;
}

static int enough_keys(struct smelt__choice *choice) {
    return choice->pipeline.block_keys >= least[choice->least].keys;
}

/* The keys of a unit of dKV, in tiles: the most that give every warp the same work; the fewest if
 * there are too few units for that. */
static int unit_key_tiles(const struct smelt__choice *choice, int columns) {
    const int keys = choice->pipeline.block_keys;
    for (int tiles = choice->most_unit_tiles; tiles > 1; tiles /= 2)
        if (keys % (tiles * TILE) == 0 &&
            columns / UNIT_COLUMNS * (keys / (tiles * TILE)) % choice->warps == 0)
            return tiles;
    return 1;
}

static int choose_units(struct smelt__choice *choice) {
    choice->latent_key_tiles = unit_key_tiles(choice, choice->shape.dv);
    choice->rope_key_tiles = unit_key_tiles(choice, rope_width(choice));
    return 1;
}

static int complete_scores(struct smelt__choice *choice) {
    return smelt__score_warps_complete(&choice->scores, choice->warps, choice->pipeline.block_keys,
                                       &choice->shape);
}

/* dQ of more than 64 heads does not fit into registers. With one tile of heads two resident blocks are
 * preferred: one adds its sums while the other multiplies. Eight warps halve each one's accumulators.
 */
static const struct smelt__axis axes[] = {
    SMELT__AXIS_INDICES(least, NULL, least),
    SMELT__AXIS(most_tiles, NULL, divide_heads, 4, 3, 2, 1),
    SMELT__AXIS(blocks, "blocks", blocks_legal, 2, 1),
    SMELT__AXIS(warps, "warps", NULL, 8, 4),
    SMELT__AXIS_SHAPES(pipeline, enough_keys, shapes),
    SMELT__AXIS(most_unit_tiles, NULL, choose_units, 4, 2, 1),
    /* by cost: */
    SMELT__AXIS(scores.heads, NULL, NULL, 1, 2, 4, 8),
    SMELT__AXIS(scores.depth, NULL, complete_scores, 1, 2, 4),
};

static void begin(struct smelt__choice *choice, const struct smelt__spec *spec) {
    *choice = (struct smelt__choice){
        .shape = smelt__mma_shape_of(spec),
        .deterministic = (int)smelt__spec_get(spec, "deterministic"),
        .blocks_asked = smelt__spec_knob(spec, "blocks", 0),
        .heads_asked = smelt__spec_knob(spec, "block_heads", 0),
    };
}

static const struct smelt__search search = {
    SMELT__AXES(axes),
    .by_cost = 2,
    .begin = begin,
    .add_regions = add_regions,
    .needs = needs,
    .cost = score_traffic,
    .less_shared = "fewer block_heads, block_keys, stages or blocks",
    .less_registers = "fewer block_heads, block_keys or blocks or more warps",
    .legal = "stages must be 1..3, block_keys 16, 32 or 64, warps 4 or 8 such that every warp has "
             "whole 16 x 16 tiles of the scores, block_heads an even division of the heads",
};

/* Unrolled k-steps of a unit, each a tile of heads: all, or two where dQ and partial rows leave few
 * registers. With more, CUDA 12.9's assembler loads operands so far ahead that it spills up to 17
 * registers. */
static int unit_unroll(const struct smelt__choice *choice) {
    return choice->deterministic && output_registers(choice) >= MUCH_OUTPUT ? 2
                                                                            : choice->shape.tiles;
}

static void add_constants(const struct smelt__choice *choice, const struct smelt__spec *spec,
                          const struct smelt__arch *arch, struct smelt__plan *plan) {
    struct smelt__sparse_attn_bwd_launch *const launch = (void *)plan->launch;
    *launch = (struct smelt__sparse_attn_bwd_launch){
        .group_queries = 1,
        .query_rows = choice->shape.blocks * block_heads(choice),
        .head_blocks = choice->shape.blocks,
        .block_heads = block_heads(choice),
    };
    smelt__mma_add_columns(&choice->shape, plan);
    SMELT__PLAN_ADD(
        plan, spec,
        {"BLOCK_KEYS", "block_keys", choice->pipeline.block_keys,
         "KV rows of one step of the main loop"},
        {"STAGES", "stages", choice->pipeline.stages, "key blocks in flight"},
        {"WARPS", "warps", choice->warps, "warps of a thread block"},
        {"BLOCK_HEADS", "block_heads", launch->block_heads, "heads of a thread block"},
        {"GROUP_QUERIES", NULL, launch->group_queries, "queries of an item"},
        {"QUERY_ROWS", NULL, launch->query_rows, "heads, padded"},
        {"HEAD_BLOCKS", NULL, launch->head_blocks, "items of a query"},
        {"TENSOR_MAPS", NULL, launch->tensor_maps, "0: rows are read without tensor maps"},
        {"SUM_MULTIPROCESSORS", NULL, launch->sum_multiprocessors,
         "0: the sums of partial rows follow this kernel"},
        {"SLICE_BLOCKS", NULL, launch->slice_blocks, "0: items are not sliced"},
        {"SCORE_HEAD_GROUPS", NULL, choice->scores.heads, "warps side by side over the heads of S"},
        {"SCORE_KEY_GROUPS", NULL, choice->scores.keys, "warps side by side over the keys"},
        {"SCORE_DEPTH_GROUPS", NULL, choice->scores.depth,
         "warps that divide the depth and compute partial sums"},
        {"LATENT_KEY_TILES", NULL, choice->latent_key_tiles,
         "tiles of 16 keys in a unit of dKV, columns that are key and value"},
        {"ROPE_KEY_TILES", NULL, choice->rope_key_tiles,
         "tiles of 16 keys in a unit of dKV, columns that are key alone"},
        {"UNIT_UNROLL", NULL, unit_unroll(choice), "k-steps of a unit of dKV that are written out"},
        {"ENTRY_SLOTS", NULL, entry_slots(choice), "key blocks whose keys' numbers are kept"},
        {"VECTOR_REDUCTIONS", NULL, arch->capability_major >= HOPPER,
         "1: four values are added to global memory at once"});
}

int smelt__sparse_attn_bwd_plan_mma(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                    struct smelt__plan *plan, struct smelt__message *message) {
    struct smelt__choice choice;
    if (smelt__mma_plan(&search, spec, arch, &choice, plan, message))
        return -1;
    smelt__sparse_attn_name(spec, plan);
    add_constants(&choice, spec, arch, plan);
    smelt__plan_set_threads(plan, choice.warps * SMELT__WARP, choice.blocks);
    plan->item = "group";
    plan->blocks_per_item = choice.shape.blocks;
    plan->persistent = 1;
    return 0;
}
