/*
 * The plans of variant mma of sparse_gqa_fwd, sparse_gqa_bwd, sparse_gqa_scores_fwd and, further down,
 * sparse_gqa_bwd_keys. The comments at the heads of templates/<family>.mma.cu explain the numbers.
 *
 * The rule. A warp has one m16 tile of a group's heads and keeps O or dq of it in registers; the warps
 * that a tile leaves divide the keys. Of the shapes below the first is taken that fits, with three
 * thread blocks per multiprocessor if they fit, else two: they hide each other's barriers and gathers
 * (measured on an H200: a fifth faster than two).
 */
#include "codegen/families/sparse_gqa.h"
#include "codegen/plan/search.h"

enum {
    TILE = SMELT__MMA_TILE,
    FEWEST_WARPS = 4,     /* the rule chooses no fewer */
    OTHER_REGISTERS = 66, /* addresses, loop state, operands */
    /* sparse_gqa_bwd_keys: */
    MOST_KEYS = 64,           /* keys of an item */
    UNIT_VALUES = 16 * 32,    /* values of dk or dv that a warp computes at a time */
    KEY_OTHER_REGISTERS = 80, /* addresses, loop state, a unit's scores and dP */
    HOPPER = 9,               /* compute capability: the first with vector reductions */
    UNIT_UNROLL = 2,
    KEY_STAGES = 2
};

/* Shapes of the pipeline, best first. TARGET, whose stages have no values, prefers 128 keys in 2 stages. */
static const struct smelt__pipeline_shape shapes[] = {{64, 3},  {64, 2}, {32, 3}, {32, 2}, {128, 2},
                                                      {128, 3}, {32, 4}, {64, 4}, {128, 4}};

/* What a kernel computes. */
enum kind { OUT, DQ, TARGET };

struct smelt__choice {
    enum kind kind;
    struct smelt__gqa_shape shape;
    int row_tiles, rows; /* m16 tiles of a group's heads, and their rows */
    int blocks, warps;
    /* All but sparse_gqa_bwd_keys: */
    int items; /* of a query: its KV heads, or for the target its lists */
    int wide, most_groups, key_groups, query_in_registers;
    struct smelt__pipeline_shape pipeline;
    /* sparse_gqa_bwd_keys: */
    int block_keys, tile_rows;
};

/* The spec's part of a choice of any kernel. */
static void begin_any(struct smelt__choice *choice, const struct smelt__spec *spec) {
    const int has_sink = smelt__spec_key(spec->schema, "sink") >= 0;
    *choice = (struct smelt__choice){.shape = smelt__sparse_gqa_shape(spec)};
    choice->kind = choice->shape.dv == 0 ? TARGET : has_sink ? OUT : DQ;
    choice->row_tiles = (choice->shape.group + TILE - 1) / TILE;
    choice->rows = choice->row_tiles * TILE;
}

static void begin(struct smelt__choice *choice, const struct smelt__spec *spec) {
    int groups = 1;
    begin_any(choice, spec);
    choice->items = choice->kind == TARGET ? choice->shape.lists : choice->shape.kv_heads;
    while (groups * choice->row_tiles < FEWEST_WARPS)
        groups *= 2;
    choice->most_groups = smelt__spec_knob(spec, "key_groups", groups);
}

static void add_regions(const struct smelt__choice *choice, struct smelt__plan *plan) {
    const int rows = choice->rows, keys = choice->pipeline.block_keys;
    const int staged = choice->pipeline.stages * keys;
    const int dqk = choice->shape.dqk, dv = choice->shape.dv;
    const int value_bytes = staged * smelt__gqa_row_bytes(dv);
    const int sum_bytes =
        rows * (choice->kind == DQ ? dqk : dv) * 4 - staged * smelt__gqa_row_bytes(dqk);
    smelt__gqa_add_tiles(plan, "QUERY_OFFSET", rows, dqk, "query tile");
    if (choice->kind == DQ)
        smelt__gqa_add_tiles(plan, "GRAD_OFFSET", rows, dv, "the heads' dO");
    smelt__gqa_add_tiles(plan, "KEYS_OFFSET", staged, dqk,
                         choice->kind == TARGET
                             ? "key blocks"
                             : "key blocks; at the end, from here on, the sums of the output");
    smelt__plan_add_region(plan, "VALUES_OFFSET", value_bytes > sum_bytes ? value_bytes : sum_bytes,
                           SMELT__TILE_ALIGNMENT, "their values");
    smelt__plan_add_region(plan, "ROWS_OFFSET", (choice->pipeline.stages + 1) * keys * 4,
                           SMELT__SMALL_ALIGNMENT, "row numbers of key blocks");
    if (choice->kind == OUT)
        smelt__plan_add_region(plan, "STATE_OFFSET", choice->key_groups * rows * 8,
                               SMELT__SMALL_ALIGNMENT,
                               "maximum and sum of each partial result, fp32");
    if (choice->kind == TARGET)
        smelt__plan_add_region(plan, "SUMS_OFFSET", 2 * choice->row_tiles * keys * 4,
                               SMELT__SMALL_ALIGNMENT,
                               "sums over a warp's heads of two key blocks, fp32");
    smelt__plan_add_region(plan, "RANGE_OFFSET", 2 * 4, 8, "which items the launch takes");
}

/* Registers, an estimate: O if any, a block's scores and probabilities, perhaps the query; or dq, scores
 * and dP. */
static struct smelt__needs needs(const struct smelt__choice *choice,
                                 const struct smelt__arch *arch) {
    const int warp_keys = choice->pipeline.block_keys / choice->key_groups;
    const int dqk = choice->shape.dqk, dv = choice->shape.dv;
    const int sums = choice->kind == DQ
                         ? dqk / 2 + warp_keys
                         : dv / 2 + warp_keys / 2 + (choice->query_in_registers ? dqk / 4 : 0);
    (void)arch;
    return (struct smelt__needs){choice->warps * SMELT__WARP, choice->blocks,
                                 sums + warp_keys / 4 + OTHER_REGISTERS};
}

static int wide_legal(struct smelt__choice *choice) {
    return choice->kind == TARGET || !choice->wide;
}

static int shape_legal(struct smelt__choice *choice) {
    return !choice->wide || (choice->pipeline.block_keys == 128 && choice->pipeline.stages == 2);
}

static int groups_legal(struct smelt__choice *choice) {
    const int keys = choice->pipeline.block_keys;
    choice->warps = choice->row_tiles * choice->key_groups;
    return choice->key_groups <= choice->most_groups && keys % (choice->key_groups * TILE) == 0 &&
           keys <= choice->warps * SMELT__WARP;
}

static int query_legal(struct smelt__choice *choice) {
    return choice->kind != DQ || !choice->query_in_registers;
}

static const struct smelt__axis axes[] = {
    SMELT__AXIS(blocks, "blocks", NULL, 3, 2, 1),
    SMELT__AXIS(wide, NULL, wide_legal, 1, 0),
    SMELT__AXIS_SHAPES(pipeline, shape_legal, shapes),
    SMELT__AXIS(key_groups, "key_groups", groups_legal, 8, 4, 2, 1),
    SMELT__AXIS(query_in_registers, NULL, query_legal, 1, 0),
};

static const struct smelt__search search = {
    SMELT__AXES(axes),
    .begin = begin,
    .add_regions = add_regions,
    .needs = needs,
    .less_shared = "fewer block_keys, stages or blocks",
    .less_registers = "fewer blocks or block_keys",
    .legal = "every warp needs whole tiles of 16 keys, and a block of keys at most as many as the "
             "thread block has threads",
};

int smelt__sparse_gqa_plan_mma(const struct smelt__spec *spec, const struct smelt__arch *arch,
                               struct smelt__plan *plan, struct smelt__message *message) {
    struct smelt__choice choice;
    if (smelt__search_plan(&search, spec, arch, &choice, plan, message))
        return -1;
    smelt__sparse_gqa_name(spec, plan);
    SMELT__PLAN_ADD(
        plan, spec,
        {"BLOCK_KEYS", "block_keys", choice.pipeline.block_keys,
         "rows of one step of the main loop"},
        {"STAGES", "stages", choice.pipeline.stages, "key blocks in flight"},
        {"KEY_GROUPS", "key_groups", choice.key_groups, "warps that divide a block's keys"},
        {"ROW_TILES", NULL, choice.row_tiles, "m16 tiles of a group's heads"},
        {"BLOCK_HEADS", NULL, choice.shape.group, "heads of a thread block"},
        {"BLOCK_ROWS", NULL, choice.rows, "a group's heads, padded"},
        {"WARPS", NULL, choice.warps, "warps of a thread block"},
        {"HEAD_BLOCKS", NULL, choice.items, "items of a query"},
        {"QUERIES_AHEAD", NULL, SMELT__WARP, "entries of a query list that a warp holds"});
    if (choice.kind != DQ)
        SMELT__PLAN_ADD(plan, spec,
                        {"QUERY_IN_REGISTERS", NULL, choice.query_in_registers,
                         "1: query fragments are loaded once"});
    if (choice.kind == OUT)
        SMELT__PLAN_ADD(plan, spec,
                        {"HAS_SINK", NULL, (int)smelt__spec_get(spec, "sink"),
                         "1: a logit per head in the denominator"});
    smelt__plan_set_threads(plan, choice.warps * SMELT__WARP, choice.blocks);
    plan->item = "query";
    plan->blocks_per_item = choice.items;
    return 0;
}

/* ---- sparse_gqa_bwd_keys -------------------------------------------------------------------------
 * The rule. An item has as many keys, and a tile as many rows, as fit, at most 64: each tile of queries is
 * read once for all keys of an item. Eight warps; four for a single tile of keys. */

static void add_key_regions(const struct smelt__choice *choice, struct smelt__plan *plan) {
    const int rows = choice->tile_rows, block = choice->block_keys;
    const int queries = rows > choice->rows ? rows / choice->rows : 1;
    const int dqk = choice->shape.dqk, dv = choice->shape.dv;
    smelt__gqa_add_tiles(plan, "KEYS_OFFSET", block, dqk, "the item's keys");
    smelt__gqa_add_tiles(plan, "VALUES_OFFSET", block, dv, "their values");
    smelt__gqa_add_tiles(plan, "QUERY_OFFSET", KEY_STAGES * rows, dqk, "tiles of queries");
    smelt__gqa_add_tiles(plan, "GRAD_OFFSET", KEY_STAGES * rows, dv, "tiles of dO");
    smelt__plan_add_region(plan, "WEIGHTS_OFFSET", rows * (block < 32 ? 128 : block * 4),
                           SMELT__TILE_ALIGNMENT, "P and dS of a tile");
    smelt__plan_add_region(plan, "STATISTICS_OFFSET", KEY_STAGES * rows * 8, SMELT__SMALL_ALIGNMENT,
                           "base and delta of a tile's rows");
    smelt__plan_add_region(plan, "MEMBERS_OFFSET", 3 * queries * 16, SMELT__SMALL_ALIGNMENT,
                           "queries of the tiles to come");
    smelt__plan_add_region(plan, "ROWS_OFFSET", block * 4, SMELT__SMALL_ALIGNMENT,
                           "the item's row numbers");
    smelt__plan_add_region(plan, "REACH_OFFSET", choice->warps * 4, SMELT__SMALL_ALIGNMENT,
                           "rows that each warp's queries read");
}

/* Registers, an estimate: this warp's units of dk and dv. */
static struct smelt__needs key_needs(const struct smelt__choice *choice,
                                     const struct smelt__arch *arch) {
    const int units = choice->block_keys * (choice->shape.dqk + choice->shape.dv) / UNIT_VALUES;
    (void)arch;
    return (struct smelt__needs){choice->warps * SMELT__WARP, choice->blocks,
                                 (units + choice->warps - 1) / choice->warps *
                                         (UNIT_VALUES / SMELT__WARP) +
                                     KEY_OTHER_REGISTERS};
}

static int keys_legal(struct smelt__choice *choice) {
    const int granularity = choice->shape.granularity;
    choice->warps = choice->block_keys > TILE ? 8 : 4;
    return choice->block_keys <= (granularity > TILE ? granularity : TILE);
}

/* Rows of whole queries, or whole parts of one. */
static int rows_legal(struct smelt__choice *choice) {
    return choice->tile_rows % choice->rows == 0 || choice->rows % choice->tile_rows == 0;
}

static const struct smelt__axis key_axes[] = {
    SMELT__AXIS(block_keys, NULL, keys_legal, MOST_KEYS, 32, TILE),
    SMELT__AXIS(blocks, "blocks", NULL, 2, 1),
    SMELT__AXIS(tile_rows, "tile_rows", rows_legal, 64, 48, 32, 16),
};

static const struct smelt__search key_search = {
    SMELT__AXES(key_axes),
    .begin = begin_any,
    .add_regions = add_key_regions,
    .needs = key_needs,
    .less_shared = "fewer tile_rows or blocks",
    .less_registers = "fewer blocks",
    .legal = "tile_rows must be whole queries or whole parts of one",
};

int smelt__sparse_gqa_bwd_keys_plan_mma(const struct smelt__spec *spec,
                                        const struct smelt__arch *arch, struct smelt__plan *plan,
                                        struct smelt__message *message) {
    struct smelt__choice choice;
    if (smelt__search_plan(&key_search, spec, arch, &choice, plan, message))
        return -1;
    smelt__sparse_gqa_name(spec, plan);
    SMELT__PLAN_ADD(
        plan, spec, {"TILE_ROWS", "tile_rows", choice.tile_rows, "rows of a tile of queries"},
        {"STAGES", NULL, KEY_STAGES, "tiles of queries in shared memory"},
        {"BLOCK_KEYS", NULL, choice.block_keys, "keys of an item"},
        {"PADDED_HEADS", NULL, choice.rows, "rows of a query: its group's heads, padded"},
        {"WARPS", NULL, choice.warps, "warps of a thread block"},
        {"UNIT_UNROLL", NULL, UNIT_UNROLL, "k-steps of dk and dv unrolled"},
        {"VECTOR_REDUCTIONS", NULL, arch->capability_major >= HOPPER,
         "1: four sums are added at once"});
    smelt__plan_set_threads(plan, choice.warps * SMELT__WARP, choice.blocks);
    plan->persistent = 1;
    return 0;
}
