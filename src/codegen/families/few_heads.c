/*
 * See few_heads.h. The comments at the heads of templates/sparse_attn_fwd.sm90_few.cu and
 * sparse_gqa_fwd.sm90_few.cu explain the numbers.
 *
 * The rule. The bottleneck is the bytes of keys in flight or in use, so the ring takes all the shared
 * memory that the Q of two queries leaves, in tiles of 64 keys by 64 columns.
 */
#include "codegen/families/few_heads.h"

enum {
    WARPGROUPS = 3,  /* two of math, gather */
    QUERIES = 2,     /* under way at once */
    BLOCK_KEYS = 64, /* wgmma's rows */
    ROW = 128,       /* bytes of a tile's row */
    TILE = BLOCK_KEYS * ROW,
    ALIGNMENT = SMELT__TILE_ALIGNMENT,
    ALL_REGISTERS = 504, /* of three threads, one in each warpgroup */
    STATISTICS = 10,     /* values of a head that warps exchange */
    REQUEST = 8,         /* bytes of a request to copy, without its item and KV tensor */
    WORD = 4,            /* bytes of a key block's description, without its item */
};

/* Key blocks that the scan may be ahead of the copies: at least two, and one for each copy team. */
static int requests(const struct smelt__few_heads *choice) {
    return choice->copy_teams > 2 ? choice->copy_teams : 2;
}

/* Row numbers that the ring holds for each query, a power of two: room for those of the requested blocks,
 * of one block held back, and of one step of the scan. */
static int ring_entries(const struct smelt__few_heads *choice) {
    return requests(choice) > 2 ? 512 : 256;
}

/* Key blocks of which the ring holds at least a part. */
static int ring_blocks(const struct smelt__few_heads *choice) {
    return (choice->ring_tiles + choice->tiles - 1) / choice->tiles;
}

static void add_regions(const struct smelt__few_heads *choice, struct smelt__plan *plan) {
    const int heads = choice->heads;
    const int parts = smelt__few_heads_parts(choice->tiles - choice->leading_tiles, choice);
    const int full_parts = choice->leading_parts + parts;
    const int order = choice->copy_teams > 1 ? choice->copy_teams : 0; /* ordering barriers */
    plan->region_count = 0;
    smelt__plan_add_region(plan, "KEYS_OFFSET", choice->ring_tiles * TILE, ALIGNMENT,
                           "tiles of key blocks; a query's last block then its output");
    smelt__plan_add_region(plan, "QUERY_OFFSET", QUERIES * heads * choice->query_tiles * ROW,
                           ALIGNMENT, "Q");
    smelt__plan_add_region(plan, "P_OFFSET", choice->p_matrices * QUERIES * heads * ROW, ALIGNMENT,
                           "probabilities");
    smelt__plan_add_region(
        plan, "STATISTICS_OFFSET", choice->statistics ? QUERIES * STATISTICS * heads * 4 : 0, 16,
        "maxima and sums that warps exchange where no rope tile has room for them, fp32");
    smelt__plan_add_region(plan, "RING_OFFSET", QUERIES * ring_entries(choice) * 4, 16,
                           "KV row numbers of the key blocks to come");
    smelt__plan_add_region(plan, "BARRIERS_OFFSET",
                           (ring_blocks(choice) * (QUERIES * full_parts + parts + 1) + QUERIES +
                            2 * requests(choice) + order) *
                               8,
                           8, "mbarriers");
    smelt__plan_add_region(plan, "REQUESTS_OFFSET",
                           requests(choice) * (REQUEST + choice->item_bytes + choice->tensor_bytes),
                           8, "key blocks that are to be copied");
    smelt__plan_add_region(plan, "WORDS_OFFSET", ring_blocks(choice) * (WORD + choice->item_bytes),
                           8, "description of each block");
    if (choice->row_numbers)
        smelt__plan_add_region(plan, "NUMBERS_OFFSET", ring_blocks(choice) * BLOCK_KEYS * 4, 16,
                               "numbers of key blocks' rows");
    smelt__plan_add_region(plan, "RANGE_OFFSET", 2 * 4, 8, "which items the launch takes");
}

/* The name of a knob; NULL if the family lacks it: then the constant is derived. */
static const char *knob(const struct smelt__spec *spec, const char *name) {
    return smelt__spec_key(spec->schema, name) >= 0 ? name : NULL;
}

/* The constants of sparse_attn's and sparse_gqa's kernels. */
static void add_constants(const struct smelt__spec *spec, const struct smelt__few_heads *choice,
                          struct smelt__plan *plan) {
    const struct smelt__plan_row constants[] = {
        {"BLOCK_KEYS", knob(spec, "block_keys"), BLOCK_KEYS, "KV rows of a key block"},
        {"STAGES", knob(spec, "stages"), choice->ring_tiles / choice->tiles,
         "whole key blocks in the ring"},
        {"PART_TILES", knob(spec, "part_tiles"), choice->part_tiles,
         "tiles of a key block that are filled and freed together"},
        {"GATHER_REGISTERS", knob(spec, "gather_registers"), choice->gather_registers,
         "registers of a thread that gathers"},
        {"COMPACT", knob(spec, "compact"), 1, "1: masked slots are dropped before the gather"},
        {"BLOCKS_PER_MULTIPROCESSOR", knob(spec, "blocks"), 1, "thread blocks resident at once"},
        {"RACECHECK", knob(spec, "racecheck"), smelt__spec_knob(spec, "racecheck", 0),
         "1: every lane of a warp arrives at barriers"},
        {"THREADS", NULL, WARPGROUPS * SMELT__WARPGROUP, "threads of a thread block"},
        {"MATH_REGISTERS", NULL, choice->math_registers,
         "registers of a thread that computes products and softmax"},
        {"BLOCK_HEADS", NULL, choice->heads, "heads, rounded up to a multiple of 8"},
        {"HEAD_BLOCKS", NULL, choice->head_blocks, "items of a query"},
        {"RING_TILES", NULL, choice->ring_tiles, "tiles of 64 keys by 64 columns in flight"},
        {"QUERIES_AHEAD", NULL, 32, "entries of a query list that a warp holds"},
        {"RING_ENTRIES", NULL, ring_entries(choice), "row numbers the ring holds"},
        {"REQUESTS", NULL, requests(choice), "key blocks that the scan may be ahead of the copies"},
        {"COPY_TEAMS", NULL, choice->copy_teams,
         "1: two warps copy each key block together; above: warps that take whole blocks in turn"},
    };
    smelt__plan_add_rows(plan, spec, constants, (int)(sizeof constants / sizeof *constants));
}

void smelt__few_heads_divide_registers(int gather, struct smelt__few_heads *choice) {
    choice->gather_registers = gather;
    choice->math_registers = (ALL_REGISTERS - gather) / 2 / SMELT__FEW_HEADS_REGISTER_UNIT *
                             SMELT__FEW_HEADS_REGISTER_UNIT;
}

int smelt__few_heads_ring(struct smelt__few_heads *choice, struct smelt__plan *plan) {
    for (choice->ring_tiles = choice->most_stages * choice->tiles;; choice->ring_tiles--) {
        add_regions(choice, plan);
        if (plan->shared_bytes <= SMELT__FEW_HEADS_SHARED)
            return choice->ring_tiles;
    }
}

void smelt__few_heads_plan(const struct smelt__spec *spec, const struct smelt__few_heads *choice,
                           struct smelt__plan *plan) {
    add_constants(spec, choice, plan);
    add_regions(choice, plan);
    plan->threads = WARPGROUPS * SMELT__WARPGROUP;
    plan->blocks_per_item = choice->head_blocks;
}
