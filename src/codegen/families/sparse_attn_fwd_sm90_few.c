/*
 * The kernel family sparse_attn_fwd: the plan of its variant sm90, keys as the matrices' rows. The
 * comment at the head of templates/sparse_attn_fwd.sm90_few.cu explains the numbers.
 *
 * The rule. The bottleneck is the bytes of keys in flight or in use, so the ring takes all the shared
 * memory that the Q of two queries leaves, in tiles of 64 keys by 64 columns: 25 of them with 8 heads
 * and dqk 576, 23 with 16, 18 with 32; a key block has 9 (measured, topk 2048: with 18 tiles 8 heads
 * take 1.29 ms instead of 1.19, 16 heads 1.36 instead of 1.21). A block's tiles are copied and
 * released two at a time (by fours 32 heads are 5 % slower), up to 16 heads by fours (2 % faster at
 * topk 512, the same at 2048). stages=n makes the ring n whole blocks. Heads are rounded up to the
 * next 8. Registers: a math warpgroup holds a whole O^T, 8 tiles of heads / 2 values a thread, 128
 * for 32 heads, and gets 208; the gather gets 88.
 */
#include "codegen/families/sparse_attn_fwd.h"

enum {
    WARPGROUP = 128, /* threads */
    WARPGROUPS = 3,  /* two of math, gather */
    QUERIES = 2,     /* under way at once */
    BLOCK_KEYS = 64, /* wgmma's rows */
    ROW = 128,       /* bytes of a tile's row */
    TILE = BLOCK_KEYS * ROW,
    TILE_COLUMNS = 64,
    HEAD_GROUP = 8,      /* wgmma's columns come in eights */
    VALUE_WIDTH = 512,   /* columns */
    ALIGNMENT = 1024,    /* bytes: the swizzle repeats every 1024 */
    ALL_REGISTERS = 504, /* of three threads, one in each warpgroup */
    REGISTER_UNIT = 8,   /* setmaxnreg's */
    GATHER_REGISTERS = 88,
    LEAST_GATHER = 64,  /* measured: with fewer, 16 heads spill */
    MOST_GATHER = 88,   /* measured: with more, 32 heads spill */
    RING_ENTRIES = 256, /* of a query: two blocks asked for, one held back, a scan's worth */
    STATISTICS = 10,    /* values of a head that warps tell each other */
    REQUESTS = 2,       /* key blocks that the scan is ahead of the copies */
    LEAST_STAGES = 2,
    MOST_STAGES = 4,
    PART_TILES = 2,
    PART_TILES_16_HEADS = 4,
    SHARED_LIMIT = 227 * 1024,
};

/* Everything that is chosen, and what follows at once. */
struct choice {
    int heads; /* rounded up */
    int tiles; /* of a key block */
    int rope;  /* whether some of them are no values */
    int ring_tiles, part_tiles;
    int math_registers, gather_registers;
};

/* Key blocks of which the ring holds at least a part. */
static int ring_blocks(const struct choice *choice) {
    return (choice->ring_tiles + choice->tiles - 1) / choice->tiles;
}

static void add_regions(const struct choice *choice, struct smelt__plan *plan) {
    const int heads = choice->heads, parts = VALUE_WIDTH / TILE_COLUMNS / choice->part_tiles;
    plan->region_count = 0;
    smelt__plan_add_region(plan, "KEYS_OFFSET", choice->ring_tiles * TILE, ALIGNMENT,
                           "tiles of key blocks; a query's last block then its output");
    smelt__plan_add_region(plan, "QUERY_OFFSET", QUERIES * heads * choice->tiles * ROW, ALIGNMENT,
                           "Q");
    smelt__plan_add_region(plan, "P_OFFSET", QUERIES * heads * ROW, ALIGNMENT, "probabilities");
    smelt__plan_add_region(plan, "STATISTICS_OFFSET",
                           choice->rope ? 0 : QUERIES * STATISTICS * heads * 4, 16,
                           "maxima and sums that warps tell each other, where there is no rope "
                           "tile for them, fp32");
    smelt__plan_add_region(plan, "RING_OFFSET", QUERIES * RING_ENTRIES * 4, 16,
                           "KV row numbers of the key blocks to come");
    smelt__plan_add_region(
        plan, "BARRIERS_OFFSET",
        (ring_blocks(choice) * (QUERIES * parts + parts + 1) + QUERIES + 2 * REQUESTS) * 8, 8,
        "mbarriers");
    smelt__plan_add_region(plan, "REQUESTS_OFFSET", REQUESTS * 16, 16,
                           "key blocks that are to be copied");
    smelt__plan_add_region(plan, "WORDS_OFFSET", ring_blocks(choice) * 8, 8, "what each block is");
    smelt__plan_add_region(plan, "RANGE_OFFSET", 2 * 4, 8, "which items the launch takes");
}

static void add_constants(const struct smelt__spec *spec, const struct choice *choice,
                          struct smelt__plan *plan) {
    const struct {
        const char *name;
        int value;
        enum smelt__origin origin;
        const char *meaning;
    } constants[] = {
        {"BLOCK_KEYS", BLOCK_KEYS, smelt__plan_origin(spec, "block_keys"),
         "KV rows of a key block"},
        {"STAGES", choice->ring_tiles / choice->tiles, smelt__plan_origin(spec, "stages"),
         "whole key blocks in the ring"},
        {"PART_TILES", choice->part_tiles, smelt__plan_origin(spec, "part_tiles"),
         "tiles of a key block that are filled and freed together"},
        {"GATHER_REGISTERS", choice->gather_registers, smelt__plan_origin(spec, "gather_registers"),
         "of a thread, gather"},
        {"COMPACT", 1, smelt__plan_origin(spec, "compact"),
         "1: masked slots are dropped before the gather"},
        {"BLOCKS_PER_MULTIPROCESSOR", 1, smelt__plan_origin(spec, "blocks"), "resident at once"},
        {"RACECHECK", smelt__spec_knob(spec, "racecheck", 0), smelt__plan_origin(spec, "racecheck"),
         "1: every lane of a warp arrives at barriers"},
        {"THREADS", WARPGROUPS * WARPGROUP, SMELT__DERIVED, "of a thread block"},
        {"MATH_REGISTERS", choice->math_registers, SMELT__DERIVED,
         "of a thread, products and softmax"},
        {"BLOCK_HEADS", choice->heads, SMELT__DERIVED, "heads, rounded up to eights"},
        {"HEAD_BLOCKS", 1, SMELT__DERIVED, "items of a query"},
        {"RING_TILES", choice->ring_tiles, SMELT__DERIVED, "64 keys by 64 columns, in flight"},
        {"QUERIES_AHEAD", 32, SMELT__DERIVED, "entries of a query list that a warp holds"},
        {"RING_ENTRIES", RING_ENTRIES, SMELT__DERIVED, "row numbers the ring holds"},
    };
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        smelt__plan_add(plan, constants[i].name, constants[i].value, constants[i].origin,
                        constants[i].meaning);
}

/* The knobs that no other depends on; -1 with a message where one is not legal. */
static int choose_knobs(const struct smelt__spec *spec, struct choice *choice,
                        struct smelt__message *message) {
    const int gather = smelt__spec_knob(spec, "gather_registers", GATHER_REGISTERS);
    if (gather < LEAST_GATHER || gather > MOST_GATHER || gather % REGISTER_UNIT != 0) {
        smelt__message_set(message,
                           "%s: gather_registers=%d is not legal with variant=sm90 and keys as "
                           "rows; legal: %d..%d by eights",
                           spec->schema->name, gather, LEAST_GATHER, MOST_GATHER);
        return -1;
    }
    choice->part_tiles = smelt__spec_knob(spec, "part_tiles",
                                          choice->heads <= 16 ? PART_TILES_16_HEADS : PART_TILES);
    choice->gather_registers = gather; /* what it leaves, the warpgroups of math share */
    choice->math_registers = (ALL_REGISTERS - gather) / 2 / REGISTER_UNIT * REGISTER_UNIT;
    return 0;
}

/* The most tiles that fit, of at most MOST_STAGES blocks. */
static int tiles_that_fit(struct choice *choice, struct smelt__plan *plan) {
    for (choice->ring_tiles = MOST_STAGES * choice->tiles;; choice->ring_tiles--) {
        add_regions(choice, plan);
        if (plan->shared_bytes <= SHARED_LIMIT)
            return choice->ring_tiles;
    }
}

/* As many tiles as fit, or those of the blocks that are asked for, if they do. */
static int choose_ring(const struct smelt__spec *spec, struct choice *choice,
                       struct smelt__plan *plan, struct smelt__message *message) {
    const int most = tiles_that_fit(choice, plan), most_stages = most / choice->tiles;
    const int stages = smelt__spec_knob(spec, "stages", 0);
    if (stages > most_stages) {
        smelt__message_set(
            message,
            "%s: stages=%d with %d heads (in eights) and dqk=%d needs more than the %d KB of "
            "shared memory; legal: %d..%d, or auto, the %d tiles of 64 columns that "
            "fit, %d of them a stage",
            spec->schema->name, stages, choice->heads, choice->tiles * TILE_COLUMNS,
            SHARED_LIMIT / 1024, LEAST_STAGES, most_stages, most, choice->tiles);
        return -1;
    }
    choice->ring_tiles = stages ? stages * choice->tiles : most;
    return 0;
}

int smelt__sparse_attn_fwd_plan_keys(const struct smelt__spec *spec, struct smelt__plan *plan,
                                     struct smelt__message *message) {
    struct choice choice = {0};
    choice.heads = ((int)smelt__spec_get(spec, "heads") + HEAD_GROUP - 1) / HEAD_GROUP * HEAD_GROUP;
    choice.tiles = (int)smelt__spec_get(spec, "dqk") / TILE_COLUMNS;
    choice.rope = choice.tiles > VALUE_WIDTH / TILE_COLUMNS;
    if (choose_knobs(spec, &choice, message) || choose_ring(spec, &choice, plan, message))
        return -1;
    plan->template_name = "sparse_attn_fwd.sm90_few.cu";
    add_constants(spec, &choice, plan);
    add_regions(&choice, plan);
    plan->threads = WARPGROUPS * WARPGROUP;
    plan->blocks_per_item = 1;
    return 0;
}
