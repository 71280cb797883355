/*
 * The kernel family sparse_gqa_bwd_keys: its keys, and the plan of its variant mma. The comment at the
 * head of templates/sparse_gqa_bwd_keys.mma.cu explains the numbers.
 *
 * The rule of mma. As many keys of an item and rows of a tile as fit, 64 of each at most: each tile
 * of queries is read once for all keys of an item. Eight warps, four for a single tile of keys.
 */
#include <limits.h>

#include "codegen/families/sparse_gqa.h"
#include "codegen/families/sparse_gqa_block.h"
#include "codegen/families/sparse_gqa_keys.h"
#include "codegen/plan/limits.h"

static int plan_mma(const struct smelt__spec *spec, const struct smelt__arch *arch,
                    struct smelt__plan *plan, struct smelt__message *message);

static const struct smelt__key keys[] = {
    SMELT__SPARSE_GQA_SHAPE,
    {SMELT__VARIANT_KNOB, SMELT__TUNED},
    {SMELT__KNOB("tile_rows", "rows of a tile of queries"), SMELT__AUTO_ONE_OF(16, 32, 48, 64),
     SMELT__TUNED, .variants = "mma"},
    {SMELT__KNOB("blocks", "resident thread blocks a multiprocessor is compiled for"),
     SMELT__AUTO_RANGE(1, 4), SMELT__TUNED_AT(1, 2, 3), .variants = "mma"},
    {SMELT__KNOB("segment", "queries of an item"), SMELT__AUTO_RANGE(1, 65536),
     SMELT__TUNED_AT(128, 256, 512), .variants = "sm90", .only_with = "granularity=64,128"},
    SMELT__SPARSE_GQA_PART_TILES,
    {SMELT__RACECHECK_KNOB},
};

const struct smelt__kernel_family smelt__sparse_gqa_bwd_keys = {
    .schema = {.name = "sparse_gqa_bwd_keys",
               .summary = "dk and dv of sparse attention for grouped heads",
               SMELT__KEYS(keys),
               .check = smelt__sparse_gqa_check},
    SMELT__VARIANTS({"sm90", smelt__sparse_gqa_bwd_keys_plan_sm90}, {"mma", plan_mma}),
};

/* ---- the plan of mma ------------------------------------------------------------------------- */

enum {
    TILE = 16,
    WARP = 32,
    MOST_KEYS = 64,        /* of an item */
    MOST_ROWS = 64,        /* of a tile */
    UNIT_VALUES = 16 * 32, /* of a gradient, that a warp computes */
    OTHER_REGISTERS = 80,  /* addresses, loop state, a unit's scores and dP */
    SWIZZLED = 64,         /* columns: pitches are multiples of it */
    TILE_ALIGNMENT = 1024, /* bytes; the swizzle repeats every 1024 */
    SMALL_ALIGNMENT = 128,
    HOPPER = 9, /* the first with vector reductions */
    UNIT_UNROLL = 2,
    STAGES = 2
};

struct choice {
    int dqk, dv, padded_heads;
    int block_keys, tile_rows, warps, blocks;
};

static int row_bytes(int columns) {
    return (columns + SWIZZLED - 1) / SWIZZLED * SWIZZLED * 2;
}

static int tile_queries(const struct choice *choice) {
    return choice->tile_rows < choice->padded_heads ? 1 : choice->tile_rows / choice->padded_heads;
}

static void add_regions(const struct choice *choice, struct smelt__plan *plan) {
    const int rows = choice->tile_rows, block = choice->block_keys;
    plan->region_count = 0;
    smelt__plan_add_region(plan, "KEYS_OFFSET", block * row_bytes(choice->dqk), TILE_ALIGNMENT,
                           "the item's keys");
    smelt__plan_add_region(plan, "VALUES_OFFSET", block * row_bytes(choice->dv), TILE_ALIGNMENT,
                           "their values");
    smelt__plan_add_region(plan, "QUERY_OFFSET", STAGES * rows * row_bytes(choice->dqk),
                           TILE_ALIGNMENT, "tiles of queries");
    smelt__plan_add_region(plan, "GRAD_OFFSET", STAGES * rows * row_bytes(choice->dv),
                           TILE_ALIGNMENT, "tiles of dO");
    smelt__plan_add_region(plan, "WEIGHTS_OFFSET", rows * (block < 32 ? 128 : block * 4),
                           TILE_ALIGNMENT, "P and dS of a tile");
    smelt__plan_add_region(plan, "STATISTICS_OFFSET", STAGES * rows * 8, SMALL_ALIGNMENT,
                           "base and delta of a tile's rows");
    smelt__plan_add_region(plan, "MEMBERS_OFFSET", 3 * tile_queries(choice) * 16, SMALL_ALIGNMENT,
                           "queries of the tiles to come");
    smelt__plan_add_region(plan, "ROWS_OFFSET", block * 4, SMALL_ALIGNMENT,
                           "the item's row numbers");
    smelt__plan_add_region(plan, "REACH_OFFSET", choice->warps * 4, SMALL_ALIGNMENT,
                           "rows that each warp's queries read");
}

/* An estimate: this warp's units of dk and dv. */
static int registers_needed(const struct choice *choice) {
    const int units = choice->block_keys * (choice->dqk + choice->dv) / UNIT_VALUES;
    return (units + choice->warps - 1) / choice->warps * (UNIT_VALUES / WARP) + OTHER_REGISTERS;
}

/* Rows of whole queries, or whole parts of one. */
static int rows_legal(const struct choice *choice) {
    return choice->tile_rows % choice->padded_heads == 0 ||
           choice->padded_heads % choice->tile_rows == 0;
}

static int choose_rows(struct choice *choice, const struct smelt__spec *spec,
                       const struct smelt__arch *arch, struct smelt__plan *scratch,
                       struct smelt__misses *misses) {
    const int wanted = smelt__spec_knob(spec, "tile_rows", 0);
    for (choice->tile_rows = MOST_ROWS; choice->tile_rows >= TILE; choice->tile_rows -= TILE) {
        if ((wanted && wanted != choice->tile_rows) || !rows_legal(choice))
            continue;
        add_regions(choice, scratch);
        if (smelt__limits_hold(arch, choice->warps * WARP, choice->blocks, scratch->shared_bytes,
                               registers_needed(choice), misses))
            return 1;
    }
    return 0;
}

static int choose(struct choice *choice, const struct smelt__spec *spec,
                  const struct smelt__arch *arch, struct smelt__plan *scratch,
                  struct smelt__misses *misses) {
    const int blocks = smelt__spec_knob(spec, "blocks", 0);
    const int granularity = (int)smelt__spec_get(spec, "granularity");
    const int most = granularity < TILE ? TILE : granularity < MOST_KEYS ? granularity : MOST_KEYS;
    for (choice->block_keys = most; choice->block_keys >= TILE; choice->block_keys /= 2) {
        choice->warps = choice->block_keys > TILE ? 8 : 4;
        for (choice->blocks = blocks ? blocks : 2; choice->blocks >= 1;
             choice->blocks = blocks ? 0 : choice->blocks - 1)
            if (choose_rows(choice, spec, arch, scratch, misses))
                return 1;
    }
    return 0;
}

static int plan_mma(const struct smelt__spec *spec, const struct smelt__arch *arch,
                    struct smelt__plan *plan, struct smelt__message *message) {
    struct smelt__misses misses = SMELT__NO_MISSES;
    const int group = (int)smelt__spec_get(spec, "heads") / (int)smelt__spec_get(spec, "kv_heads");
    struct choice choice = {.dqk = (int)smelt__spec_get(spec, "dqk"),
                            .dv = (int)smelt__spec_get(spec, "dv"),
                            .padded_heads = (group + TILE - 1) / TILE * TILE};
    if (!choose(&choice, spec, arch, plan, &misses)) {
        smelt__misses_explain(&misses, spec, arch, "fewer tile_rows or blocks", "fewer blocks",
                              "tile_rows must be whole queries or whole parts of one", message);
        return -1;
    }
    const struct smelt__plan_row constants[] = {
        {"TILE_ROWS", "tile_rows", choice.tile_rows, "rows of a tile of queries"},
        {"STAGES", NULL, STAGES, "tiles of queries in shared memory"},
        {"BLOCK_KEYS", NULL, choice.block_keys, "keys of an item"},
        {"PADDED_HEADS", NULL, choice.padded_heads, "rows of a query: its group's heads, padded"},
        {"WARPS", NULL, choice.warps, "of a thread block"},
        {"UNIT_UNROLL", NULL, UNIT_UNROLL, "k-steps of dk and dv unrolled"},
        {"VECTOR_REDUCTIONS", NULL, arch->capability_major >= HOPPER,
         "1: four sums are added at once"},
    };
    plan->template_name = "sparse_gqa_bwd_keys.mma.cu";
    smelt__sparse_gqa_name(spec, plan);
    smelt__plan_add_rows(plan, spec, constants, (int)(sizeof constants / sizeof *constants));
    add_regions(&choice, plan);
    smelt__plan_set_threads(plan, choice.warps * WARP, choice.blocks);
    plan->persistent = 1;
    return 0;
}
