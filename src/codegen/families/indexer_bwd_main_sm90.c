/*
 * The kernel family indexer_bwd_main: the plan of its variant sm90. The comment at the head of
 * templates/indexer_bwd_main.sm90.cu explains the numbers.
 *
 * The rule. wgmma's products have 64 rows, and an item has two such tiles. Queries whose heads, padded
 * to 8, 16, 32 or 64, fill the tiles share the item's list, so that one addition to a row of dk serves
 * all of them. At most eight queries share an item: with 8 heads they fill one tile. A query with more
 * than 64 heads fills both tiles.
 */
#include "codegen/families/indexer_bwd_main.h"
#include "codegen/plan/limits.h"

enum {
    WARPGROUP = 128, /* threads */
    ROWS = 64,       /* of a tile: wgmma's */
    MOST_TILES = 2,
    KEYS = 64, /* of a key block */
    LEAST_ROWS = 8,
    TILE_COLUMNS = 64,
    TILE = ROWS * TILE_COLUMNS * 2, /* bytes */
    STAGES = 6,                     /* key blocks under way */
    BUFFERS = 2,                    /* of Q, and of a tile's dX, used alternately */
    ALIGNMENT = 1024,               /* bytes: the swizzle repeats every 1024 */
    GATHER_REGISTERS = 56,
    SUMS_REGISTERS = 152,
    SCORES_REGISTERS = 152, /* 512 threads have 128 each, 384 have 168 */
    SCORES_REGISTERS_ALONE = 200,
    SUMS_REGISTERS_ALONE = 184
};

/* Rows of a query without the knob `group`: its heads, padded. */
static int padded_heads(int heads) {
    int rows = LEAST_ROWS;
    while (rows < heads)
        rows *= 2;
    return rows;
}

static int refuse(const struct smelt__spec *spec, struct smelt__message *message) {
    const int heads = (int)smelt__spec_get(spec, "heads"),
              group = smelt__spec_knob(spec, "group", 1);
    if (smelt__spec_get(spec, "dim") < TILE_COLUMNS)
        return smelt__spec_refuse(spec, message, "variant sm90 has no dim=32; variant=mma has it");
    if (group * padded_heads(heads) > MOST_TILES * ROWS)
        return smelt__spec_refuse(
            spec, message,
            "group=%d of %d heads do not fit into the %d rows of an item; at most %d of them do",
            group, heads, MOST_TILES * ROWS, MOST_TILES * ROWS / padded_heads(heads));
    return 0;
}

/* As many queries as fill an item. */
static int most_queries(int heads) {
    const int queries = MOST_TILES * ROWS / padded_heads(heads);
    return queries < SMELT__INDEXER_BWD_MOST_GROUP ? queries : SMELT__INDEXER_BWD_MOST_GROUP;
}

/* Key blocks between the gather and the sums: STAGES, then as many as dX has buffers, and the one
 * that is summed. */
static int number_stages(int tiles) {
    return STAGES + BUFFERS * tiles + 1;
}

static void add_constants(const struct smelt__spec *spec, int group, int tiles,
                          struct smelt__plan *plan) {
    struct smelt__indexer_bwd_main_launch *const launch = (void *)plan->launch;
    launch->group_queries = group;
    launch->block_heads = tiles * ROWS;
    launch->group_tiles = tiles > 1 && group > 1 ? 2 : 1;
    launch->tensor_maps = 1;
    SMELT__PLAN_ADD(
        plan, spec, {"GROUP_QUERIES", "group", launch->group_queries, "queries of an item"},
        {"RACECHECK", "racecheck", smelt__spec_knob(spec, "racecheck", 0),
         "1: every lane of a warp arrives at barriers"},
        {"BLOCK_KEYS", NULL, KEYS, "keys of a key block"},
        {"STAGES", NULL, STAGES, "key blocks in shared memory"},
        {"NUMBER_STAGES", NULL, number_stages(tiles), "key blocks whose numbers are kept"},
        {"QUERY_ROWS", NULL, tiles * ROWS / group, "rows of a query: heads, padded"},
        {"ROW_TILES", NULL, tiles, "tiles of 64 rows of an item"},
        {"BLOCK_HEADS", NULL, launch->block_heads, "rows of an item"},
        {"GROUP_TILES", NULL, launch->group_tiles,
         "2: lists are in sections: of the first half of the queries, of both, of the second"},
        {"TENSOR_MAPS", NULL, launch->tensor_maps, "1: q is read through its map"},
        {"SCORES_REGISTERS", NULL, tiles > 1 ? SCORES_REGISTERS : SCORES_REGISTERS_ALONE,
         "registers of a thread that computes X and dQ"},
        {"SUMS_REGISTERS", NULL, tiles > 1 ? SUMS_REGISTERS : SUMS_REGISTERS_ALONE,
         "registers of a thread that computes dK"},
        {"GATHER_REGISTERS", NULL, GATHER_REGISTERS, "registers of a thread that gathers"});
}

static void add_regions(int column_tiles, int group, int tiles, struct smelt__plan *plan) {
    smelt__plan_add_region(plan, "QUERIES_OFFSET", BUFFERS * tiles * column_tiles * TILE, ALIGNMENT,
                           "Q of two items");
    smelt__plan_add_region(plan, "KEYS_OFFSET", STAGES * column_tiles * TILE, ALIGNMENT,
                           "key blocks");
    smelt__plan_add_region(plan, "DX_OFFSET", BUFFERS * tiles * TILE, ALIGNMENT,
                           "dX of two blocks, bf16");
    smelt__plan_add_region(plan, "GRADS_OFFSET", STAGES * KEYS * group * 4, 16,
                           "grads of the key blocks");
    smelt__plan_add_region(plan, "NUMBERS_OFFSET", number_stages(tiles) * KEYS * 4, 16,
                           "their keys' numbers");
    smelt__plan_add_region(plan, "BARRIERS_OFFSET", 2 * (BUFFERS + (BUFFERS + STAGES) * tiles) * 8,
                           8, "mbarriers");
}

int smelt__indexer_bwd_main_plan_sm90(const struct smelt__spec *spec,
                                      const struct smelt__arch *arch, struct smelt__plan *plan,
                                      struct smelt__message *message) {
    (void)arch;
    if (refuse(spec, message))
        return -1;
    const int heads = (int)smelt__spec_get(spec, "heads");
    const int group = smelt__spec_knob(spec, "group", most_queries(heads));
    const int tiles = group * padded_heads(heads) > ROWS ? 2 : 1;
    smelt__indexer_bwd_main_name(spec, plan);
    add_constants(spec, group, tiles, plan);
    add_regions((int)smelt__spec_get(spec, "dim") / TILE_COLUMNS, group, tiles, plan);
    plan->item = "group";
    smelt__plan_set_threads(plan, (tiles + 2) * WARPGROUP, 1);
    plan->persistent = 1;
    return 0;
}
