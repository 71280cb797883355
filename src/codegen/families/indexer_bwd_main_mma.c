/*
 * The kernel family indexer_bwd_main: the plan of its variant mma. The comment at the head of
 * templates/indexer_bwd_main.mma.cu explains the numbers.
 *
 * The rule. A warp has 16 rows. Up to 16 heads are padded to 16 rows and up to 32 to 32, and
 * neighbouring queries share an item, so that it has 64 rows: four warps then share the gathered keys,
 * and a key that several of the queries have is added to dk once. As many blocks are resident as
 * registers and shared memory allow, since one hides another's waits. The size of a unit of dK is the
 * one that gives the busiest warp the least work; of equal ones, the largest with which those blocks
 * fit, because it reads Q the least often.
 */
#include "codegen/families/indexer_bwd_main.h"
#include "codegen/plan/search.h"

enum {
    TILE = 16,        /* rows of a warp */
    SHARED_ROWS = 64, /* of an item that queries share */
    MOST_ROWS = 128,
    KEYS = 64, /* of a key block */
    UNIT_COLUMNS = 32,
    DEFAULT_STAGES = 2,
    OTHER_REGISTERS = 36,  /* addresses, loop state */
    TILE_ALIGNMENT = 1024, /* bytes; the swizzle repeats every 1024 */
    SMALL_ALIGNMENT = 128,
    HOPPER = 9 /* compute capability: from it on, four values are added at once */
};

struct smelt__choice {
    int dim, query_rows, group;
    int stages, blocks, key_tiles;
};

static int rows_of(const struct smelt__choice *choice) {
    return choice->group * choice->query_rows;
}

static int warps_of(const struct smelt__choice *choice) {
    return rows_of(choice) / TILE;
}

/* Slots for key numbers and gradients: one for each block whose rows are in flight, one for the
 * block whose numbers are, one for the block being computed. A power of two. */
static int entry_slots(const struct smelt__choice *choice) {
    return choice->stages > 2 ? 8 : 4;
}

/* Of a row in shared memory: the swizzle's 128 at least. */
static int row_bytes(const struct smelt__choice *choice) {
    enum { LEAST = 128 };
    return choice->dim * 2 > LEAST ? choice->dim * 2 : LEAST;
}

static void add_regions(const struct smelt__choice *choice, struct smelt__plan *plan) {
    const int rows = rows_of(choice), entries = entry_slots(choice) * KEYS;
    smelt__plan_add_region(plan, "QUERY_OFFSET", rows * row_bytes(choice), TILE_ALIGNMENT,
                           "rows of queries; at the end those of dq");
    smelt__plan_add_region(plan, "KEYS_OFFSET", choice->stages * KEYS * row_bytes(choice),
                           TILE_ALIGNMENT, "key blocks");
    smelt__plan_add_region(plan, "WEIGHTS_OFFSET", rows * KEYS * 2, TILE_ALIGNMENT, "dX, bf16");
    smelt__plan_add_region(plan, "GRADS_OFFSET", entries * choice->group * 4, SMALL_ALIGNMENT,
                           "gradients of keys' logits");
    smelt__plan_add_region(plan, "ENTRIES_OFFSET", entries * 4, SMALL_ALIGNMENT, "numbers of keys");
    smelt__plan_add_region(plan, "ITEM_OFFSET", (2 + choice->group) * 4, 16,
                           "which queries the item has");
}

/* Tiles of dK that the busiest warp computes. */
static int unit_cost(const struct smelt__choice *choice, int key_tiles) {
    const int units = choice->dim / UNIT_COLUMNS * (KEYS / TILE / key_tiles);
    return (units + warps_of(choice) - 1) / warps_of(choice) * key_tiles;
}

/* An estimate: dQ throughout, and the larger of X with dX and of a unit of dK with its operands. */
static int registers_needed(const struct smelt__choice *choice) {
    const int dq = choice->dim / 2, scores = KEYS / 2 + KEYS / 4 + 8;
    const int unit = 20 * choice->key_tiles + 8;
    return dq + (scores > unit ? scores : unit) + OTHER_REGISTERS;
}

static struct smelt__needs needs(const struct smelt__choice *choice,
                                 const struct smelt__arch *arch) {
    (void)arch;
    return (struct smelt__needs){warps_of(choice) * SMELT__WARP, choice->blocks,
                                 registers_needed(choice)};
}

/* Whether no other size of a unit costs less. */
static int costs_least(struct smelt__choice *choice) {
    const int cost = unit_cost(choice, choice->key_tiles);
    return cost <= unit_cost(choice, 1) && cost <= unit_cost(choice, 2) &&
           cost <= unit_cost(choice, 4);
}

/* As many resident blocks as fit, then the largest of the cheapest units that fit with them. */
static const struct smelt__axis axes[] = {
    SMELT__AXIS(blocks, "blocks", NULL, 4, 3, 2, 1),
    SMELT__AXIS(key_tiles, NULL, costs_least, 4, 2, 1),
};

/* Rows of a query, and how many queries share an item. */
static void begin(struct smelt__choice *choice, const struct smelt__spec *spec) {
    const int heads = (int)smelt__spec_get(spec, "heads");
    const int rows = (heads + TILE - 1) / TILE * TILE;
    *choice = (struct smelt__choice){
        .dim = (int)smelt__spec_get(spec, "dim"),
        .query_rows = rows,
        .group = smelt__spec_knob(spec, "group", rows <= SHARED_ROWS / 2 ? SHARED_ROWS / rows : 1),
        .stages = smelt__spec_knob(spec, "stages", DEFAULT_STAGES),
    };
}

static const struct smelt__search search = {
    SMELT__AXES(axes),
    .begin = begin,
    .add_regions = add_regions,
    .needs = needs,
    .less_shared = "fewer stages or blocks or a smaller group",
    .less_registers = "fewer blocks or a smaller group",
    .legal = "",
};

static int refuse_group(const struct smelt__spec *spec, struct smelt__message *message) {
    struct smelt__choice choice;
    begin(&choice, spec);
    if (rows_of(&choice) <= MOST_ROWS)
        return 0;
    return smelt__spec_refuse(spec, message,
                              "group=%d of %d heads do not fit into the %d rows that variant=mma "
                              "has; at most %d of them do",
                              choice.group, (int)smelt__spec_get(spec, "heads"), MOST_ROWS,
                              MOST_ROWS / choice.query_rows);
}

static void add_constants(const struct smelt__choice *choice, const struct smelt__spec *spec,
                          const struct smelt__arch *arch, struct smelt__plan *plan) {
    struct smelt__indexer_bwd_main_launch *const launch = (void *)plan->launch;
    launch->group_queries = choice->group;
    launch->block_heads = rows_of(choice);
    launch->group_tiles = 1;
    SMELT__PLAN_ADD(
        plan, spec, {"GROUP_QUERIES", "group", launch->group_queries, "queries of an item"},
        {"STAGES", "stages", choice->stages, "key blocks in flight"},
        {"BLOCK_KEYS", NULL, KEYS, "rows of k of one step of the main loop"},
        {"WARPS", NULL, warps_of(choice), "warps of a thread block"},
        {"QUERY_ROWS", NULL, choice->query_rows, "rows of a query: heads, padded"},
        {"BLOCK_HEADS", NULL, launch->block_heads, "rows of an item"},
        {"KEY_TILES", NULL, choice->key_tiles, "tiles of 16 keys in a unit of dK"},
        {"UNIT_UNROLL", NULL, rows_of(choice) / TILE,
         "k-steps of a unit of dK that are written out"},
        {"ENTRY_SLOTS", NULL, entry_slots(choice), "key blocks whose keys' numbers are kept"},
        {"GROUP_TILES", NULL, launch->group_tiles, "1: the keys of a group's queries are one list"},
        {"TENSOR_MAPS", NULL, launch->tensor_maps, "0: rows are read without tensor maps"},
        {"VECTOR_REDUCTIONS", NULL, arch->capability_major >= HOPPER,
         "1: four values are added to global memory at once"});
}

int smelt__indexer_bwd_main_plan_mma(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                     struct smelt__plan *plan, struct smelt__message *message) {
    struct smelt__choice choice;
    if (refuse_group(spec, message) ||
        smelt__search_plan(&search, spec, arch, &choice, plan, message))
        return -1;
    smelt__indexer_bwd_main_name(spec, plan);
    add_constants(&choice, spec, arch, plan);
    smelt__plan_set_threads(plan, warps_of(&choice) * SMELT__WARP, choice.blocks);
    plan->item = "group";
    plan->persistent = 1;
    return 0;
}
