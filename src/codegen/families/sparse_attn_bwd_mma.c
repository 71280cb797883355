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
#include <limits.h>

#include "codegen/families/sparse_attn_bwd.h"
#include "codegen/families/sparse_attn_widths.h"
#include "codegen/plan/limits.h"

enum {
    TILE = 16,           /* heads of an mma tile, columns of a k-step, keys of two n8 tiles */
    MAX_BLOCK_TILES = 4, /* 64 heads: of more, dQ fits into no registers */
    MAX_DEPTH_GROUPS = 4,
    UNIT_COLUMNS = 32,     /* of dKV */
    WARP = 32,             /* threads */
    OTHER_REGISTERS = 40,  /* addresses, loop state */
    UNIT_REGISTERS = 23,   /* the same where a unit of dKV is computed */
    LATE_REGISTERS = 9,    /* and so many more from BLACKWELL on, as its assembler has it */
    ROW_REGISTERS = 20,    /* or where it is stored as partial rows */
    MUCH_OUTPUT = 96,      /* registers of dQ beside which a unit's partial rows have few */
    TILE_ALIGNMENT = 1024, /* bytes; the swizzle repeats every 1024 */
    SMALL_ALIGNMENT = 128,
    WEIGHT_ROW_BYTES = 128, /* at least: the swizzle needs them */
    HOPPER = 9,             /* compute capability: from it on, four values are added at once */
    BLACKWELL = 10
};

/* Preferred shapes of the pipeline, best first. Longer key blocks share operands among more keys,
 * above all Q and dO in dKV, and the fixed cost of the barriers. One stage does: its gather is
 * hidden behind dKV; a second one spares a barrier. */
static const struct pipeline_shape {
    int block_keys, stages;
} shapes[] = {{64, 2}, {64, 1}, {32, 2}, {32, 1}, {64, 3}, {32, 3}, {16, 2}, {16, 1}, {16, 3}};

/* The choices. */
struct choice {
    int heads, deterministic;
    int dqk, dv; /* of tiles */
    int block_tiles, head_blocks;
    int block_keys, stages, warps, blocks;
    int score_head_groups, score_key_groups, score_depth_groups;
    int latent_key_tiles, rope_key_tiles;
};

static int block_heads(const struct choice *choice) {
    return choice->block_tiles * TILE;
}

static int at_least(int value, int least) {
    return value > least ? value : least;
}

/* Slots for key numbers: one for each block whose rows are in flight, one for the block whose
 * numbers are, one for the block being computed. A power of two. */
static int entry_slots(const struct choice *choice) {
    return choice->stages > 2 ? 8 : 4;
}

static int sum_bytes(const struct choice *choice) {
    return (choice->score_depth_groups - 1) * block_heads(choice) * choice->block_keys * 8;
}

static void add_regions(const struct choice *choice, struct smelt__plan *plan) {
    const int heads = block_heads(choice);
    plan->region_count = 0;
    smelt__plan_add_region(plan, "QUERY_OFFSET", heads * choice->dqk * 2, TILE_ALIGNMENT,
                           "query tile; at the end the tile of dq");
    smelt__plan_add_region(plan, "GRAD_OFFSET", heads * choice->dv * 2, TILE_ALIGNMENT,
                           "tile of grad_out");
    smelt__plan_add_region(plan, "KEYS_OFFSET",
                           choice->stages * choice->block_keys * choice->dqk * 2, TILE_ALIGNMENT,
                           "key blocks");
    smelt__plan_add_region(
        plan, "WEIGHTS_OFFSET",
        at_least(heads * at_least(choice->block_keys * 4, WEIGHT_ROW_BYTES), sum_bytes(choice)),
        TILE_ALIGNMENT, "rows of P and dS, bf16; before, partial sums of S and dP, fp32");
    smelt__plan_add_region(plan, "STATISTICS_OFFSET", heads * 8, SMALL_ALIGNMENT,
                           "base and delta of each row");
    smelt__plan_add_region(plan, "ITEM_OFFSET", 5 * 4, 16, "which query and heads this is");
    smelt__plan_add_region(plan, "ENTRIES_OFFSET", entry_slots(choice) * choice->block_keys * 4,
                           SMALL_ALIGNMENT, "numbers of keys");
}

static int score_tiles(const struct choice *choice) {
    return choice->block_tiles / choice->score_head_groups;
}

static int score_pairs(const struct choice *choice) {
    return choice->block_keys / TILE / choice->score_key_groups;
}

/* Registers of dQ in a thread. */
static int output_registers(const struct choice *choice) {
    return block_heads(choice) * choice->dqk / (choice->warps * WARP);
}

/* An estimate: dQ throughout, and the largest need of the three products. The scores have two
 * products and two buffers of operands, the others one. */
static int registers_needed(const struct choice *choice, const struct smelt__arch *arch) {
    const int scores = 16 * score_tiles(choice) * score_pairs(choice) +
                       2 * (8 * score_tiles(choice) + 4 * score_pairs(choice));
    const int output = 4 * choice->block_tiles + 4;
    const int dkv = 20 * choice->latent_key_tiles + 8;
    const int more = choice->deterministic                 ? ROW_REGISTERS
                     : arch->capability_major >= BLACKWELL ? LATE_REGISTERS
                                                           : 0;
    const int unit = UNIT_REGISTERS + more;
    return output_registers(choice) +
           at_least(at_least(scores, output) + OTHER_REGISTERS, dkv + unit);
}

static int fits(const struct choice *choice, const struct smelt__arch *arch,
                struct smelt__plan *scratch, struct smelt__misses *misses) {
    add_regions(choice, scratch);
    return smelt__limits_hold(arch, choice->warps * WARP, choice->blocks, scratch->shared_bytes,
                              registers_needed(choice, arch), misses);
}

static int divides(int divisor, int number) {
    return number % divisor == 0;
}

static int score_groups_legal(const struct choice *choice) {
    return choice->score_key_groups > 0 &&
           choice->score_head_groups * choice->score_key_groups * choice->score_depth_groups ==
               choice->warps &&
           divides(choice->score_head_groups, choice->block_tiles) &&
           divides(choice->score_key_groups, choice->block_keys / TILE) &&
           divides(choice->score_depth_groups, choice->dv / TILE) &&
           divides(choice->score_depth_groups, (choice->dqk - choice->dv) / TILE);
}

/* Bytes of shared memory that a formation of the scores reads and writes for one key block. */
static long score_traffic(const struct choice *choice) {
    const long heads = (long)score_tiles(choice) * TILE, keys = (long)score_pairs(choice) * TILE;
    const long operands =
        (2 * heads + keys) * choice->dv + (heads + keys) * (choice->dqk - choice->dv);
    return choice->warps * operands * 2 / choice->score_depth_groups + 2L * sum_bytes(choice);
}

/* The best formation of the scores for a shape, written into *choice. 0 when none fits. */
static int choose_formation(struct choice *choice, const struct smelt__arch *arch,
                            struct smelt__plan *scratch, struct smelt__misses *misses) {
    struct choice best = *choice;
    long best_traffic = 0;
    for (int heads = 1; heads <= choice->warps; heads *= 2)
        for (int depth = 1; depth <= MAX_DEPTH_GROUPS; depth *= 2) {
            struct choice next = *choice;
            next.score_head_groups = heads;
            next.score_depth_groups = depth;
            next.score_key_groups = choice->warps / (heads * depth);
            if (!score_groups_legal(&next) || !fits(&next, arch, scratch, misses))
                continue;
            const long traffic = score_traffic(&next);
            if (!best_traffic || traffic < best_traffic) {
                best = next;
                best_traffic = traffic;
            }
        }
    *choice = best;
    return best_traffic != 0;
}

/* The keys of a unit of dKV, in tiles: the most that give every warp the same work; the fewest if
 * there are too few units for that. */
static int unit_key_tiles(const struct choice *choice, int columns, int most) {
    for (int tiles = most; tiles > 1; tiles /= 2)
        if (divides(tiles * TILE, choice->block_keys) &&
            divides(choice->warps, columns / UNIT_COLUMNS * (choice->block_keys / (tiles * TILE))))
            return tiles;
    return 1;
}

/* The formations of all products for a shape. 0 when none fits. */
static int choose_units(struct choice *choice, const struct smelt__arch *arch,
                        struct smelt__plan *scratch, struct smelt__misses *misses) {
    for (int most = 4; most >= 1; most /= 2) {
        choice->latent_key_tiles = unit_key_tiles(choice, choice->dv, most);
        choice->rope_key_tiles = unit_key_tiles(choice, choice->dqk - choice->dv, most);
        if (choose_formation(choice, arch, scratch, misses))
            return 1;
    }
    return 0;
}

/* A knob's value, or 0 for "the rule decides". */
static int knob(const struct smelt__spec *spec, const char *name) {
    return smelt__spec_knob(spec, name, 0);
}

/* Tries the pipeline shapes that the knobs leave, of at least so many keys, for a number of warps.
 */
static int choose_shape(struct choice *choice, int least_keys, const struct smelt__spec *spec,
                        const struct smelt__arch *arch, struct smelt__plan *scratch,
                        struct smelt__misses *misses) {
    const int block_keys = knob(spec, "block_keys"), stages = knob(spec, "stages");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (shapes[i].block_keys < least_keys ||
            (block_keys && block_keys != shapes[i].block_keys) ||
            (stages && stages != shapes[i].stages))
            continue;
        choice->block_keys = shapes[i].block_keys;
        choice->stages = shapes[i].stages;
        if (choose_units(choice, arch, scratch, misses))
            return 1;
    }
    return 0;
}

/* Eight warps where they fit: they halve each one's accumulators. */
static int choose_warps(struct choice *choice, int least_keys, const struct smelt__spec *spec,
                        const struct smelt__arch *arch, struct smelt__plan *scratch,
                        struct smelt__misses *misses) {
    const int warps = knob(spec, "warps");
    for (choice->warps = 8; choice->warps >= 4; choice->warps /= 2)
        if ((!warps || warps == choice->warps) &&
            choose_shape(choice, least_keys, spec, arch, scratch, misses))
            return 1;
    return 0;
}

/* Cuts the heads into the fewest blocks of at most `most` tiles, evenly. */
static void cut_heads(struct choice *choice, int most) {
    const int tiles = (choice->heads + TILE - 1) / TILE;
    choice->head_blocks = (tiles + most - 1) / most;
    choice->block_tiles = (tiles + choice->head_blocks - 1) / choice->head_blocks;
}

/* The fewest blocks of heads that fit with key blocks of at least `least_keys` keys. With one tile,
 * two resident blocks are preferred: one adds its sums while the other multiplies. */
static int choose_heads(struct choice *choice, int least_tiles, int least_keys,
                        const struct smelt__spec *spec, const struct smelt__arch *arch,
                        struct smelt__plan *scratch, struct smelt__misses *misses) {
    const int heads = knob(spec, "block_heads"), blocks = knob(spec, "blocks");
    for (int most = MAX_BLOCK_TILES; most >= least_tiles; most--) {
        cut_heads(choice, most);
        if (heads && heads != block_heads(choice))
            continue;
        for (choice->blocks = blocks ? blocks : 2; choice->blocks >= 1; choice->blocks--) {
            if (blocks ? choice->blocks != blocks : choice->blocks == 2 && choice->block_tiles > 1)
                continue;
            if (choose_warps(choice, least_keys, spec, arch, scratch, misses))
                return 1;
        }
    }
    return 0;
}

/* Blocks of one tile of heads are tried last, key blocks of 16 before them. */
static int choose(struct choice *choice, const struct smelt__spec *spec,
                  const struct smelt__arch *arch, struct smelt__plan *scratch,
                  struct smelt__misses *misses) {
    static const struct {
        int tiles, keys;
    } least[] = {{2, 2 * TILE}, {2, TILE}, {1, 2 * TILE}, {1, TILE}};
    *choice = (struct choice){
        .heads = (int)smelt__spec_get(spec, "heads"),
        .dqk = smelt__sparse_attn_columns(spec, "dqk"),
        .dv = smelt__sparse_attn_columns(spec, "dv"),
        .deterministic = (int)smelt__spec_get(spec, "deterministic"),
    };
    for (size_t i = 0; i < sizeof least / sizeof *least; i++)
        if (choose_heads(choice, least[i].tiles, least[i].keys, spec, arch, scratch, misses))
            return 1;
    return 0;
}

static int has_plan(const struct smelt__spec *spec, const struct smelt__arch *arch) {
    struct choice choice;
    struct smelt__plan scratch = {.arch = arch};
    struct smelt__misses misses = SMELT__NO_MISSES;
    return choose(&choice, spec, arch, &scratch, &misses);
}

/* Unrolled k-steps of a unit, each a tile of heads: all, or two where dQ and partial rows leave few
 * registers. With more, CUDA 12.9's assembler loads operands so far ahead that it spills up to 17
 * registers. */
static int unit_unroll(const struct choice *choice) {
    return choice->deterministic && output_registers(choice) >= MUCH_OUTPUT ? 2
                                                                            : choice->block_tiles;
}

static void add_constants(const struct choice *choice, const struct smelt__spec *spec,
                          const struct smelt__arch *arch, struct smelt__plan *plan) {
    struct smelt__sparse_attn_bwd_launch *const launch = (void *)plan->launch;
    *launch = (struct smelt__sparse_attn_bwd_launch){
        .group_queries = 1,
        .query_rows = choice->head_blocks * block_heads(choice),
        .head_blocks = choice->head_blocks,
        .block_heads = block_heads(choice),
    };
    const struct smelt__plan_row constants[] = {
        {"BLOCK_KEYS", "block_keys", choice->block_keys, "KV rows of one step of the main loop"},
        {"STAGES", "stages", choice->stages, "key blocks in flight"},
        {"WARPS", "warps", choice->warps, "of a thread block"},
        {"BLOCK_HEADS", "block_heads", launch->block_heads, "heads of a thread block"},
        {"GROUP_QUERIES", NULL, launch->group_queries, "queries of an item"},
        {"QUERY_ROWS", NULL, launch->query_rows, "heads, padded"},
        {"HEAD_BLOCKS", NULL, launch->head_blocks, "items of a query"},
        {"TENSOR_MAPS", NULL, launch->tensor_maps, "no rows come by the copy engine"},
        {"SUM_MULTIPROCESSORS", NULL, launch->sum_multiprocessors,
         "sums of partial rows follow it"},
        {"SLICE_BLOCKS", NULL, launch->slice_blocks, "items are not sliced"},
        {"SCORE_HEAD_GROUPS", NULL, choice->score_head_groups,
         "warps side by side over the heads of S"},
        {"SCORE_KEY_GROUPS", NULL, choice->score_key_groups, "over its keys"},
        {"SCORE_DEPTH_GROUPS", NULL, choice->score_depth_groups, "over its depth: partial sums"},
        {"LATENT_KEY_TILES", NULL, choice->latent_key_tiles,
         "tiles of 16 keys in a unit of dKV, columns that are key and value"},
        {"ROPE_KEY_TILES", NULL, choice->rope_key_tiles, "columns that are key alone"},
        {"UNIT_UNROLL", NULL, unit_unroll(choice), "k-steps of a unit of dKV that are written out"},
        {"ENTRY_SLOTS", NULL, entry_slots(choice), "key blocks whose keys' numbers are kept"},
        {"VECTOR_REDUCTIONS", NULL, arch->capability_major >= HOPPER,
         "1: four values are added to global memory at once"},
    };
    smelt__sparse_attn_add_columns(spec, plan);
    smelt__plan_add_rows(plan, spec, constants, (int)(sizeof constants / sizeof *constants));
}

int smelt__sparse_attn_bwd_plan_mma(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                    struct smelt__plan *plan, struct smelt__message *message) {
    struct choice choice;
    struct smelt__misses misses = SMELT__NO_MISSES;
    if (!choose(&choice, spec, arch, plan, &misses)) {
        if (smelt__sparse_attn_refuse_widths(spec, arch, has_plan, message))
            return -1;
        smelt__misses_explain(
            &misses, spec, arch, "fewer block_heads, block_keys, stages or blocks",
            "fewer block_heads, block_keys or blocks or more warps",
            "stages must be 1..3, block_keys 16, 32 or 64, warps 4 or 8 such that "
            "every warp has whole 16 x 16 tiles of the scores, block_heads an "
            "even cut of the heads",
            message);
        return -1;
    }
    plan->template_name = "sparse_attn_bwd.mma.cu";
    smelt__sparse_attn_bwd_name(spec, plan);
    add_constants(&choice, spec, arch, plan);
    add_regions(&choice, plan);
    smelt__plan_set_threads(plan, choice.warps * WARP, choice.blocks);
    plan->item = "group";
    plan->blocks_per_item = choice.head_blocks;
    plan->persistent = 1;
    return 0;
}
