/*
 * The plans of variant mma of sparse_gqa_fwd, sparse_gqa_bwd, sparse_gqa_scores_fwd and, further down,
 * sparse_gqa_bwd_keys. The comments at the heads of templates/<family>.mma.cu explain the numbers.
 *
 * The rule. A warp has one m16 tile of a group's heads and keeps O or dq of it in registers; the warps
 * that a tile leaves divide the keys. Of the shapes below the first is taken that fits, with three
 * thread blocks per multiprocessor if they fit, else two: they hide each other's barriers and gathers
 * (measured on an H200: a fifth faster than two).
 */
#include <limits.h>

#include "codegen/families/sparse_gqa.h"
#include "codegen/plan/limits.h"

enum {
    TILE = 16,             /* heads of an mma tile, columns of a k-step, keys of two n8 tiles */
    WARP = 32,             /* threads */
    MOST_BLOCKS = 3,       /* resident, by the rule */
    FEWEST_WARPS = 4,      /* that the rule asks for */
    OTHER_REGISTERS = 66,  /* addresses, loop state, operands */
    SWIZZLED = 64,         /* columns: pitches are multiples of it */
    TILE_ALIGNMENT = 1024, /* bytes; the swizzle repeats every 1024 */
    SMALL_ALIGNMENT = 128,
};

/* Shapes of the pipeline, best first; the first one for TARGET alone, whose stages have no values. */
static const struct pipeline_shape {
    int block_keys, stages;
} shapes[] = {{128, 2}, {64, 3},  {64, 2}, {32, 3}, {32, 2},
              {128, 2}, {128, 3}, {32, 4}, {64, 4}, {128, 4}};

/* What a kernel computes. */
enum kind { OUT, DQ, TARGET };

/* The choices. */
struct choice {
    enum kind kind;
    int dqk, dv, row_tiles; /* dv: 0 without values */
    int block_keys, stages, key_groups, blocks, query_in_registers;
};

static int row_bytes(int columns) {
    return (columns + SWIZZLED - 1) / SWIZZLED * SWIZZLED * 2;
}

static int warps_of(const struct choice *choice) {
    return choice->row_tiles * choice->key_groups;
}

static void add_regions(const struct choice *choice, struct smelt__plan *plan) {
    const int rows = choice->row_tiles * TILE, staged = choice->stages * choice->block_keys;
    const int key_bytes = staged * row_bytes(choice->dqk);
    const int value_bytes = staged * row_bytes(choice->dv);
    const int sum_bytes = rows * (choice->kind == DQ ? choice->dqk : choice->dv) * 4 - key_bytes;
    plan->region_count = 0;
    smelt__plan_add_region(plan, "QUERY_OFFSET", rows * row_bytes(choice->dqk), TILE_ALIGNMENT,
                           "query tile");
    if (choice->kind == DQ)
        smelt__plan_add_region(plan, "GRAD_OFFSET", rows * row_bytes(choice->dv), TILE_ALIGNMENT,
                               "the heads' dO");
    smelt__plan_add_region(plan, "KEYS_OFFSET", key_bytes, TILE_ALIGNMENT,
                           choice->kind == TARGET
                               ? "key blocks"
                               : "key blocks; at the end, from here on, the sums of the output");
    smelt__plan_add_region(plan, "VALUES_OFFSET", value_bytes > sum_bytes ? value_bytes : sum_bytes,
                           TILE_ALIGNMENT, "their values");
    smelt__plan_add_region(plan, "ROWS_OFFSET", (choice->stages + 1) * choice->block_keys * 4,
                           SMALL_ALIGNMENT, "row numbers of key blocks");
    if (choice->kind == OUT)
        smelt__plan_add_region(plan, "STATE_OFFSET", choice->key_groups * rows * 8, SMALL_ALIGNMENT,
                               "maximum and sum of each partial result, fp32");
    if (choice->kind == TARGET)
        smelt__plan_add_region(plan, "SUMS_OFFSET", 2 * choice->row_tiles * choice->block_keys * 4,
                               SMALL_ALIGNMENT, "sums over a warp's heads of two key blocks, fp32");
    smelt__plan_add_region(plan, "RANGE_OFFSET", 2 * 4, 8, "which items the launch takes");
}

/* An estimate: O if any, a block's scores and probabilities, perhaps the query; or dq, scores and dP. */
static int registers_needed(const struct choice *choice) {
    const int warp_keys = choice->block_keys / choice->key_groups;
    if (choice->kind == DQ)
        return choice->dqk / 2 + warp_keys + warp_keys / 4 + OTHER_REGISTERS;
    return choice->dv / 2 + warp_keys / 2 + warp_keys / 4 +
           (choice->query_in_registers ? choice->dqk / 4 : 0) + OTHER_REGISTERS;
}

static int fits(struct choice *choice, const struct smelt__arch *arch, struct smelt__plan *scratch,
                struct smelt__misses *misses) {
    const int threads = warps_of(choice) * WARP;
    if (choice->block_keys % (choice->key_groups * TILE) != 0 || choice->block_keys > threads ||
        threads > arch->threads_per_multiprocessor / choice->blocks || threads > 1024)
        return 0;
    add_regions(choice, scratch);
    for (choice->query_in_registers = choice->kind != DQ; choice->query_in_registers >= 0;
         choice->query_in_registers--)
        if (smelt__limits_hold(arch, threads, choice->blocks, scratch->shared_bytes,
                               registers_needed(choice), misses))
            return 1;
    return 0;
}

/* Tries the numbers of warps and the shapes that the knobs leave, for a number of blocks. */
static int choose_shape(struct choice *choice, const struct smelt__spec *spec,
                        const struct smelt__arch *arch, struct smelt__plan *scratch,
                        struct smelt__misses *misses) {
    const int block_keys = smelt__spec_knob(spec, "block_keys", 0);
    const int stages = smelt__spec_knob(spec, "stages", 0);
    const int groups = smelt__spec_knob(spec, "key_groups", 0);
    int wanted = 1;
    while (wanted * choice->row_tiles < FEWEST_WARPS)
        wanted *= 2;
    for (size_t i = choice->kind == TARGET ? 0 : 1; i < sizeof shapes / sizeof *shapes; i++) {
        choice->block_keys = shapes[i].block_keys;
        choice->stages = shapes[i].stages;
        if ((block_keys && block_keys != choice->block_keys) ||
            (stages && stages != choice->stages))
            continue;
        for (choice->key_groups = groups ? groups : wanted; choice->key_groups >= 1;
             choice->key_groups = groups ? 0 : choice->key_groups / 2)
            if (fits(choice, arch, scratch, misses))
                return 1;
    }
    return 0;
}

static int choose(struct choice *choice, const struct smelt__spec *spec,
                  const struct smelt__arch *arch, struct smelt__plan *scratch,
                  struct smelt__misses *misses) {
    const int blocks = smelt__spec_knob(spec, "blocks", 0);
    for (choice->blocks = blocks ? blocks : MOST_BLOCKS; choice->blocks >= 1;
         choice->blocks = blocks ? 0 : choice->blocks - 1)
        if (choose_shape(choice, spec, arch, scratch, misses))
            return 1;
    return 0;
}

/* A query's KV heads; of the target, its lists. */
static int items_of(const struct choice *choice, const struct smelt__spec *spec) {
    return choice->kind == TARGET && !smelt__spec_get(spec, "lists")
               ? 1
               : (int)smelt__spec_get(spec, "kv_heads");
}

static void add_constants(const struct choice *choice, const struct smelt__spec *spec,
                          struct smelt__plan *plan) {
    const int kv_heads = (int)smelt__spec_get(spec, "kv_heads");
    const struct smelt__plan_row in_registers = {"QUERY_IN_REGISTERS", NULL,
                                                 choice->query_in_registers,
                                                 "1: query fragments are loaded once"};
    const struct smelt__plan_row has_sink = {
        "HAS_SINK", NULL, choice->kind == OUT ? smelt__spec_knob(spec, "sink", 0) : 0,
        "1: a logit per head in the denominator"};
    const struct smelt__plan_row constants[] = {
        {"BLOCK_KEYS", "block_keys", choice->block_keys, "rows of one step of the main loop"},
        {"STAGES", "stages", choice->stages, "key blocks in flight"},
        {"KEY_GROUPS", "key_groups", choice->key_groups, "warps that divide a block's keys"},
        {"ROW_TILES", NULL, choice->row_tiles, "m16 tiles of a group's heads"},
        {"BLOCK_HEADS", NULL, (int)smelt__spec_get(spec, "heads") / kv_heads,
         "heads of a thread block"},
        {"BLOCK_ROWS", NULL, choice->row_tiles * TILE, "a group's heads, padded"},
        {"WARPS", NULL, warps_of(choice), "of a thread block"},
        {"HEAD_BLOCKS", NULL, items_of(choice, spec), "items of a query"},
        {"QUERIES_AHEAD", NULL, WARP, "entries of a query list that a warp holds"},
    };
    smelt__plan_add_rows(plan, spec, constants, (int)(sizeof constants / sizeof *constants));
    if (choice->kind != DQ)
        smelt__plan_add_rows(plan, spec, &in_registers, 1);
    if (choice->kind == OUT)
        smelt__plan_add_rows(plan, spec, &has_sink, 1);
}

static int plan_mma(const struct smelt__spec *spec, const struct smelt__arch *arch, enum kind kind,
                    struct smelt__plan *plan, struct smelt__message *message) {
    struct smelt__misses misses = SMELT__NO_MISSES;
    const int group = (int)smelt__spec_get(spec, "heads") / (int)smelt__spec_get(spec, "kv_heads");
    static const char *const templates[] = {[OUT] = "sparse_gqa_fwd.mma.cu",
                                            [DQ] = "sparse_gqa_bwd.mma.cu",
                                            [TARGET] = "sparse_gqa_scores_fwd.mma.cu"};
    struct choice choice = {.kind = kind,
                            .dqk = (int)smelt__spec_get(spec, "dqk"),
                            .dv = kind == TARGET ? 0 : (int)smelt__spec_get(spec, "dv"),
                            .row_tiles = (group + TILE - 1) / TILE};
    if (!choose(&choice, spec, arch, plan, &misses)) {
        smelt__misses_explain(
            &misses, spec, arch, "fewer block_keys, stages or blocks", "fewer blocks or block_keys",
            "every warp needs whole tiles of 16 keys, and a block of keys at most "
            "as many as the thread block has threads",
            message);
        return -1;
    }
    plan->template_name = templates[kind];
    smelt__sparse_gqa_name(spec, plan);
    add_constants(&choice, spec, plan);
    add_regions(&choice, plan);
    smelt__plan_set_threads(plan, warps_of(&choice) * WARP, choice.blocks);
    plan->item = "query";
    plan->blocks_per_item = items_of(&choice, spec);
    return 0;
}

int smelt__sparse_gqa_fwd_plan_mma(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                   struct smelt__plan *plan, struct smelt__message *message) {
    return plan_mma(spec, arch, OUT, plan, message);
}

int smelt__sparse_gqa_bwd_plan_mma(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                   struct smelt__plan *plan, struct smelt__message *message) {
    return plan_mma(spec, arch, DQ, plan, message);
}

int smelt__sparse_gqa_scores_fwd_plan_mma(const struct smelt__spec *spec,
                                          const struct smelt__arch *arch, struct smelt__plan *plan,
                                          struct smelt__message *message) {
    return plan_mma(spec, arch, TARGET, plan, message);
}

/* ---- sparse_gqa_bwd_keys -------------------------------------------------------------------------
 * The rule. An item has as many keys, and a tile as many rows, as fit, at most 64: each tile of queries is
 * read once for all keys of an item. Eight warps; four for a single tile of keys. */

enum {
    MOST_KEYS = 64,           /* of an item */
    MOST_TILE_ROWS = 64,      /* of a tile */
    UNIT_VALUES = 16 * 32,    /* of a gradient, that a warp computes */
    KEY_OTHER_REGISTERS = 80, /* addresses, loop state, a unit's scores and dP */
    HOPPER = 9,               /* the first with vector reductions */
    UNIT_UNROLL = 2,
    KEY_STAGES = 2
};

struct key_choice {
    int dqk, dv, padded_heads;
    int block_keys, tile_rows, warps, blocks;
};

static int tile_queries(const struct key_choice *choice) {
    return choice->tile_rows < choice->padded_heads ? 1 : choice->tile_rows / choice->padded_heads;
}

static void add_key_regions(const struct key_choice *choice, struct smelt__plan *plan) {
    const int rows = choice->tile_rows, block = choice->block_keys;
    plan->region_count = 0;
    smelt__plan_add_region(plan, "KEYS_OFFSET", block * row_bytes(choice->dqk), TILE_ALIGNMENT,
                           "the item's keys");
    smelt__plan_add_region(plan, "VALUES_OFFSET", block * row_bytes(choice->dv), TILE_ALIGNMENT,
                           "their values");
    smelt__plan_add_region(plan, "QUERY_OFFSET", KEY_STAGES * rows * row_bytes(choice->dqk),
                           TILE_ALIGNMENT, "tiles of queries");
    smelt__plan_add_region(plan, "GRAD_OFFSET", KEY_STAGES * rows * row_bytes(choice->dv),
                           TILE_ALIGNMENT, "tiles of dO");
    smelt__plan_add_region(plan, "WEIGHTS_OFFSET", rows * (block < 32 ? 128 : block * 4),
                           TILE_ALIGNMENT, "P and dS of a tile");
    smelt__plan_add_region(plan, "STATISTICS_OFFSET", KEY_STAGES * rows * 8, SMALL_ALIGNMENT,
                           "base and delta of a tile's rows");
    smelt__plan_add_region(plan, "MEMBERS_OFFSET", 3 * tile_queries(choice) * 16, SMALL_ALIGNMENT,
                           "queries of the tiles to come");
    smelt__plan_add_region(plan, "ROWS_OFFSET", block * 4, SMALL_ALIGNMENT,
                           "the item's row numbers");
    smelt__plan_add_region(plan, "REACH_OFFSET", choice->warps * 4, SMALL_ALIGNMENT,
                           "rows that each warp's queries read");
}

/* An estimate: this warp's units of dk and dv. */
static int key_registers_needed(const struct key_choice *choice) {
    const int units = choice->block_keys * (choice->dqk + choice->dv) / UNIT_VALUES;
    return (units + choice->warps - 1) / choice->warps * (UNIT_VALUES / WARP) + KEY_OTHER_REGISTERS;
}

/* Rows of whole queries, or whole parts of one. */
static int rows_legal(const struct key_choice *choice) {
    return choice->tile_rows % choice->padded_heads == 0 ||
           choice->padded_heads % choice->tile_rows == 0;
}

static int choose_tile_rows(struct key_choice *choice, const struct smelt__spec *spec,
                            const struct smelt__arch *arch, struct smelt__plan *scratch,
                            struct smelt__misses *misses) {
    const int wanted = smelt__spec_knob(spec, "tile_rows", 0);
    for (choice->tile_rows = MOST_TILE_ROWS; choice->tile_rows >= TILE; choice->tile_rows -= TILE) {
        if ((wanted && wanted != choice->tile_rows) || !rows_legal(choice))
            continue;
        add_key_regions(choice, scratch);
        if (smelt__limits_hold(arch, choice->warps * WARP, choice->blocks, scratch->shared_bytes,
                               key_registers_needed(choice), misses))
            return 1;
    }
    return 0;
}

static int choose_keys(struct key_choice *choice, const struct smelt__spec *spec,
                       const struct smelt__arch *arch, struct smelt__plan *scratch,
                       struct smelt__misses *misses) {
    const int blocks = smelt__spec_knob(spec, "blocks", 0);
    const int granularity = (int)smelt__spec_get(spec, "granularity");
    const int most = granularity < TILE ? TILE : granularity < MOST_KEYS ? granularity : MOST_KEYS;
    for (choice->block_keys = most; choice->block_keys >= TILE; choice->block_keys /= 2) {
        choice->warps = choice->block_keys > TILE ? 8 : 4;
        for (choice->blocks = blocks ? blocks : 2; choice->blocks >= 1;
             choice->blocks = blocks ? 0 : choice->blocks - 1)
            if (choose_tile_rows(choice, spec, arch, scratch, misses))
                return 1;
    }
    return 0;
}

int smelt__sparse_gqa_bwd_keys_plan_mma(const struct smelt__spec *spec,
                                        const struct smelt__arch *arch, struct smelt__plan *plan,
                                        struct smelt__message *message) {
    struct smelt__misses misses = SMELT__NO_MISSES;
    const int group = (int)smelt__spec_get(spec, "heads") / (int)smelt__spec_get(spec, "kv_heads");
    struct key_choice choice = {.dqk = (int)smelt__spec_get(spec, "dqk"),
                                .dv = (int)smelt__spec_get(spec, "dv"),
                                .padded_heads = (group + TILE - 1) / TILE * TILE};
    if (!choose_keys(&choice, spec, arch, plan, &misses)) {
        smelt__misses_explain(&misses, spec, arch, "fewer tile_rows or blocks", "fewer blocks",
                              "tile_rows must be whole queries or whole parts of one", message);
        return -1;
    }
    const struct smelt__plan_row constants[] = {
        {"TILE_ROWS", "tile_rows", choice.tile_rows, "rows of a tile of queries"},
        {"STAGES", NULL, KEY_STAGES, "tiles of queries in shared memory"},
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
    add_key_regions(&choice, plan);
    smelt__plan_set_threads(plan, choice.warps * WARP, choice.blocks);
    plan->persistent = 1;
    return 0;
}
