/*
 * The kernel family sparse_attn_fwd: the plan of its variant mma. The comment at the head of
 * templates/sparse_attn_fwd.mma.cu explains the numbers.
 *
 * The rule. Heads are divided into blocks of at most 64, in tiles of 16: fewer blocks gather less
 * twice. For the largest block that fits, the rule tries the shapes below in order of preference, and
 * for each every formation of the warps; of the formations that fit, it takes the one that moves the
 * fewest bytes through shared memory. The bottleneck of two products with mma.sync is ldmatrix: every
 * warp that needs an operand row reads it once.
 */
#include "codegen/families/sparse_attn_fwd.h"
#include "codegen/families/sparse_attn_mma.h"

enum {
    TILE = SMELT__MMA_TILE,
    MAX_REGISTER_TILES = 2,     /* of a query kept in registers: three spill */
    MAX_REGISTER_COLUMNS = 512, /* likewise */
    OTHER_REGISTERS = 44,       /* addresses, loop state: below it some configurations spill */
};

/* Preferred shapes of the pipeline, best first. Longer key blocks share the fixed cost of three
 * barriers and a softmax among more keys; more stages hide more of the gather. */
static const struct smelt__pipeline_shape shapes[] = {{64, 3}, {64, 2}, {32, 3},  {32, 2},
                                                      {16, 3}, {16, 2}, {128, 2}, {32, 4},
                                                      {64, 4}, {16, 4}, {128, 3}, {128, 4}};

struct smelt__choice {
    struct smelt__mma_shape shape;
    int most_tiles, blocks, blocks_asked, warps;
    struct smelt__pipeline_shape pipeline;
    int one_rope_stage, rope_stages;
    struct smelt__score_warps scores;
    int query_in_registers;
    int output_head_groups, output_column_groups;
};

static int rope_width(const struct smelt__choice *choice) {
    return choice->shape.dqk - choice->shape.dv;
}

static int block_heads(const struct smelt__choice *choice) {
    return choice->shape.tiles * TILE;
}

static int score_bytes(const struct smelt__choice *choice) {
    return choice->scores.depth * block_heads(choice) * choice->pipeline.block_keys * 4;
}

static int row_threads(const struct smelt__choice *choice) {
    int most = choice->warps * SMELT__WARP / block_heads(choice);
    int threads = 1;
    while (threads * 2 <= most && threads * 2 <= choice->pipeline.block_keys / 2)
        threads *= 2;
    return threads;
}

static int ring_entries(const struct smelt__choice *choice) {
    return smelt__mma_ring_entries(&choice->pipeline, choice->warps);
}

static void add_regions(const struct smelt__choice *choice, struct smelt__plan *plan) {
    int heads = block_heads(choice), stage = choice->pipeline.stages * choice->pipeline.block_keys;
    smelt__plan_add_region(plan, "QUERY_OFFSET", heads * choice->shape.dqk * 2,
                           SMELT__TILE_ALIGNMENT, "query tile; at the end the output tile");
    smelt__plan_add_region(plan, "LATENT_OFFSET", stage * choice->shape.dv * 2,
                           SMELT__TILE_ALIGNMENT, "key blocks, the columns that are key and value");
    smelt__plan_add_region(plan, "ROPE_OFFSET",
                           choice->rope_stages * choice->pipeline.block_keys * rope_width(choice) *
                               2,
                           SMELT__TILE_ALIGNMENT, "key blocks, the columns that are key alone");
    smelt__plan_add_region(plan, "SCORES_OFFSET", score_bytes(choice), SMELT__SMALL_ALIGNMENT,
                           "partial scores, fp32; then the probabilities, bf16");
    smelt__plan_add_region(plan, "FACTORS_OFFSET", heads * 4, SMELT__SMALL_ALIGNMENT,
                           "factors of the output's rows, fp32");
    smelt__plan_add_region(plan, "TASK_OFFSET", 4 * 4, 16, "which query and heads this is");
    smelt__plan_add_region(plan, "SLOTS_OFFSET", 8 + 2 * 4, 16, "positions of its slots");
    smelt__plan_add_region(plan, "RING_OFFSET", ring_entries(choice) * 4, SMELT__SMALL_ALIGNMENT,
                           "KV row numbers of the key blocks to come");
    smelt__plan_add_region(plan, "COUNTS_OFFSET", choice->warps * 4, SMELT__SMALL_ALIGNMENT,
                           "valid slots that each warp found");
    smelt__plan_add_region(plan, "RANGE_OFFSET", 2 * 4, 8, "which items the launch takes");
}

static int score_tiles(const struct smelt__choice *choice) {
    return choice->shape.tiles / choice->scores.heads;
}

/* An estimate: O and the query throughout, and the larger need of the two products. The first has
 * its scores and two buffers of operands, the second one buffer. */
static struct smelt__needs needs(const struct smelt__choice *choice,
                                 const struct smelt__arch *arch) {
    const int threads = choice->warps * SMELT__WARP;
    int output = block_heads(choice) * choice->shape.dv / threads;
    int scores = block_heads(choice) * choice->pipeline.block_keys * choice->scores.depth / threads;
    int steps = choice->shape.dqk / TILE / choice->scores.depth;
    int query = choice->query_in_registers ? steps * score_tiles(choice) * 4 : 0;
    int keys = 4 * choice->pipeline.block_keys / TILE / choice->scores.keys;
    int first = scores + 2 * (keys + (choice->query_in_registers ? 0 : 4 * score_tiles(choice)));
    int second = 4 * choice->shape.tiles / choice->output_head_groups + 4;
    (void)arch;
    return (struct smelt__needs){threads, choice->blocks,
                                 output + query + (first > second ? first : second) +
                                     OTHER_REGISTERS};
}

/* Bytes of shared memory read and written for one key block, gather apart. */
static long shared_traffic(const struct smelt__choice *choice) {
    long score_rows = (long)score_tiles(choice) * TILE * !choice->query_in_registers +
                      choice->pipeline.block_keys / choice->scores.keys;
    long scores = choice->warps * score_rows * choice->shape.dqk / choice->scores.depth * 2;
    long output_rows = (long)block_heads(choice) / choice->output_head_groups +
                       choice->shape.dv / choice->output_column_groups;
    return scores + 2L * score_bytes(choice) +
           choice->warps * output_rows * choice->pipeline.block_keys * 2;
}

static int divide_heads(struct smelt__choice *choice) {
    smelt__mma_divide_heads(choice->most_tiles, &choice->shape);
    return choice->shape.last_tiles >= 1;
}

static int blocks_legal(struct smelt__choice *choice) {
    return choice->blocks_asked || choice->blocks == 1 || choice->shape.tiles == 1;
}

/* The formation of the second product that reads the least, 0 when none is legal: whole tiles of
 * heads times whole pairs of n8 tiles of columns. */
static int choose_output_groups(struct smelt__choice *choice) {
    int best = 0, best_rows = 0;
    for (int heads = 1; heads <= choice->warps; heads *= 2) {
        int columns = choice->warps / heads;
        if (choice->shape.tiles % heads != 0 || choice->shape.dv / TILE % columns != 0)
            continue;
        int rows = block_heads(choice) / heads + choice->shape.dv / columns;
        if (!best || rows < best_rows) {
            best = heads;
            best_rows = rows;
        }
    }
    if (best) {
        choice->output_head_groups = best;
        choice->output_column_groups = choice->warps / best;
    }
    return best;
}

static int choose_rope_stages(struct smelt__choice *choice) {
    const int stages = choice->pipeline.stages;
    choice->rope_stages = choice->one_rope_stage ? 1 : rope_width(choice) ? stages : 0;
    return !choice->one_rope_stage || (stages == 2 && rope_width(choice));
}

static int complete_scores(struct smelt__choice *choice) {
    return smelt__score_warps_complete(&choice->scores, choice->warps, choice->pipeline.block_keys,
                                       &choice->shape);
}

static int query_fits(struct smelt__choice *choice) {
    return !choice->query_in_registers ||
           (choice->shape.tiles <= MAX_REGISTER_TILES && choice->shape.dv <= MAX_REGISTER_COLUMNS);
}

/* Blocks of more than 64 heads leave no shared memory for two stages. Two resident blocks hide each
 * other's fixed costs where both fit: short O, few heads. Eight warps halve each one's accumulators.
 * Separate rope buffers for every stage are preferred; with two stages one will do, since it is free
 * once the scores are. */
static const struct smelt__axis axes[] = {
    SMELT__AXIS(most_tiles, NULL, divide_heads, 4, 3, 2, 1),
    SMELT__AXIS(blocks, "blocks", blocks_legal, 2, 1),
    SMELT__AXIS(warps, "warps", choose_output_groups, 8, 4),
    SMELT__AXIS_SHAPES(pipeline, NULL, shapes),
    SMELT__AXIS(one_rope_stage, NULL, choose_rope_stages, 0, 1),
    /* by cost: */
    SMELT__AXIS(scores.heads, NULL, NULL, 1, 2, 4, 8),
    SMELT__AXIS(scores.depth, NULL, complete_scores, 1, 2, 4),
    SMELT__AXIS(query_in_registers, NULL, query_fits, 0, 1),
};

static void begin(struct smelt__choice *choice, const struct smelt__spec *spec) {
    *choice = (struct smelt__choice){.shape = smelt__mma_shape_of(spec),
                                     .blocks_asked = smelt__spec_knob(spec, "blocks", 0)};
}

static const struct smelt__search search = {
    SMELT__AXES(axes),
    .by_cost = 3,
    .begin = begin,
    .add_regions = add_regions,
    .needs = needs,
    .cost = shared_traffic,
    .less_shared = "fewer block_keys, stages or blocks",
    .less_registers = "fewer blocks or block_keys or more warps",
    .legal = "stages must be 2..4, block_keys 16, 32, 64 or 128, warps 4 or 8 such that every warp "
             "has whole 16 x 16 tiles of both products",
};

static void add_constants(const struct smelt__choice *choice, const struct smelt__spec *spec,
                          struct smelt__plan *plan) {
    const int compact = (int)smelt__spec_get(spec, "compact");
    smelt__mma_add_columns(&choice->shape, plan);
    SMELT__PLAN_ADD(
        plan, spec,
        {"COMPACT", "compact", smelt__spec_get(spec, "compact") == SMELT__AUTO ? 1 : compact,
         "1: masked slots are dropped before the gather"},
        {"BLOCK_KEYS", "block_keys", choice->pipeline.block_keys,
         "KV rows of one step of the main loop"},
        {"STAGES", "stages", choice->pipeline.stages, "key blocks in flight"},
        {"WARPS", "warps", choice->warps, "warps of a thread block"},
        {"BLOCK_HEADS", NULL, block_heads(choice), "heads of a thread block"},
        {"HEAD_BLOCKS", NULL, choice->shape.blocks, "thread blocks of a query"},
        {"LAST_BLOCK_TILES", NULL, choice->shape.last_tiles,
         "tiles of 16 heads in a query's last thread block"},
        {"RAGGED_HEADS", NULL, choice->shape.last_tiles != choice->shape.tiles,
         "1: a query's last thread block has fewer tiles than the others"},
        {"ROPE_STAGES", NULL, choice->rope_stages, "buffers for the columns that are key alone"},
        {"SCORE_HEAD_GROUPS", NULL, choice->scores.heads,
         "warps side by side over the heads of QK"},
        {"SCORE_KEY_GROUPS", NULL, choice->scores.keys, "warps side by side over the keys"},
        {"SCORE_DEPTH_GROUPS", NULL, choice->scores.depth,
         "warps that divide the depth and compute partial sums"},
        {"QUERY_IN_REGISTERS", NULL, choice->query_in_registers,
         "1: query fragments are loaded once"},
        {"SCORE_UNROLL", NULL, choice->query_in_registers ? choice->shape.dv / TILE : 8,
         "k-steps of QK unrolled; all when the query is in registers"},
        {"OUTPUT_UNROLL", NULL,
         choice->query_in_registers && choice->blocks > 1 ? 1 : choice->pipeline.block_keys / TILE,
         "k-steps of PV unrolled; one where registers are scarcest"},
        {"ROW_THREADS", NULL, row_threads(choice), "threads of a head in the softmax"},
        {"OUTPUT_HEAD_GROUPS", NULL, choice->output_head_groups,
         "warps side by side over PV's heads"},
        {"OUTPUT_COLUMN_GROUPS", NULL, choice->output_column_groups,
         "warps side by side over PV's columns"},
        {"QUERIES_AHEAD", NULL, SMELT__WARP, "entries of a query list that a warp holds"},
        {"RING_ENTRIES", NULL, ring_entries(choice), "row numbers the ring holds, a power of two"});
}

int smelt__sparse_attn_fwd_plan_mma(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                    struct smelt__plan *plan, struct smelt__message *message) {
    struct smelt__choice choice;
    if (smelt__mma_plan(&search, spec, arch, &choice, plan, message))
        return -1;
    smelt__sparse_attn_name(spec, plan);
    smelt__plan_add(plan, "PDL", arch->pdl, SMELT__DERIVED, "1: has programmatic dependent launch");
    add_constants(&choice, spec, plan);
    smelt__plan_set_threads(plan, choice.warps * SMELT__WARP, choice.blocks);
    plan->item = "query";
    plan->blocks_per_item = choice.shape.blocks;
    return 0;
}
