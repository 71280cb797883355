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
#include <limits.h>

#include "codegen/families/sparse_attn_fwd.h"
#include "codegen/families/sparse_attn_widths.h"
#include "codegen/plan/limits.h"

enum {
    TILE = 16,              /* heads of an mma tile, columns of a k-step, keys of two n8 tiles */
    MAX_BLOCK_TILES = 4,    /* 64 heads: more leaves no shared memory for two stages */
    MAX_REGISTER_TILES = 2, /* of a query kept in registers: three spill */
    MAX_REGISTER_COLUMNS = 512, /* likewise */
    WARP = 32,                  /* threads */
    OTHER_REGISTERS = 44,       /* addresses, loop state: below it some configurations spill */
    TILE_ALIGNMENT = 1024,      /* bytes; the swizzle repeats every 1024 */
    SMALL_ALIGNMENT = 128,
};

/* Preferred shapes of the pipeline, best first. Longer key blocks share the fixed cost of three
 * barriers and a softmax among more keys; more stages hide more of the gather. */
static const struct pipeline_shape {
    int block_keys, stages;
} shapes[] = {{64, 3},  {64, 2}, {32, 3}, {32, 2}, {16, 3},  {16, 2},
              {128, 2}, {32, 4}, {64, 4}, {16, 4}, {128, 3}, {128, 4}};

/* The choices. */
struct choice {
    int heads;
    int dqk, dv; /* of tiles */
    int block_tiles, head_blocks, last_block_tiles;
    int block_keys, stages, rope_stages, warps, blocks;
    int score_head_groups, score_key_groups, score_depth_groups, query_in_registers;
    int output_head_groups, output_column_groups;
};

static int rope_width(const struct choice *choice) {
    return choice->dqk - choice->dv;
}

static int score_bytes(const struct choice *choice) {
    return choice->score_depth_groups * choice->block_tiles * TILE * choice->block_keys * 4;
}

static int row_threads(const struct choice *choice) {
    int most = choice->warps * WARP / (choice->block_tiles * TILE);
    int threads = 1;
    while (threads * 2 <= most && threads * 2 <= choice->block_keys / 2)
        threads *= 2;
    return threads;
}

/* The ring holds the entries of every block under way, an incomplete one and a scan's worth. */
static int ring_entries(const struct choice *choice) {
    int least = (choice->stages + 1) * choice->block_keys + choice->warps * WARP;
    int entries = 1;
    while (entries < least)
        entries *= 2;
    return entries;
}

static void add_regions(const struct choice *choice, struct smelt__plan *plan) {
    int heads = choice->block_tiles * TILE, stage = choice->stages * choice->block_keys;
    plan->region_count = 0;
    smelt__plan_add_region(plan, "QUERY_OFFSET", heads * choice->dqk * 2, TILE_ALIGNMENT,
                           "query tile; at the end the output tile");
    smelt__plan_add_region(plan, "LATENT_OFFSET", stage * choice->dv * 2, TILE_ALIGNMENT,
                           "key blocks, the columns that are key and value");
    smelt__plan_add_region(plan, "ROPE_OFFSET",
                           choice->rope_stages * choice->block_keys * rope_width(choice) * 2,
                           TILE_ALIGNMENT, "key blocks, the columns that are key alone");
    smelt__plan_add_region(plan, "SCORES_OFFSET", score_bytes(choice), SMALL_ALIGNMENT,
                           "partial scores, fp32; then the probabilities, bf16");
    smelt__plan_add_region(plan, "FACTORS_OFFSET", heads * 4, SMALL_ALIGNMENT,
                           "factors of the output's rows, fp32");
    smelt__plan_add_region(plan, "TASK_OFFSET", 4 * 4, 16, "which query and heads this is");
    smelt__plan_add_region(plan, "SLOTS_OFFSET", 8 + 2 * 4, 16, "where its slots are");
    smelt__plan_add_region(plan, "RING_OFFSET", ring_entries(choice) * 4, SMALL_ALIGNMENT,
                           "KV row numbers of the key blocks to come");
    smelt__plan_add_region(plan, "COUNTS_OFFSET", choice->warps * 4, SMALL_ALIGNMENT,
                           "valid slots that each warp found");
    smelt__plan_add_region(plan, "RANGE_OFFSET", 2 * 4, 8, "which items the launch takes");
}

static int score_tiles(const struct choice *choice) {
    return choice->block_tiles / choice->score_head_groups;
}

static int score_steps(const struct choice *choice) {
    return choice->dqk / TILE / choice->score_depth_groups;
}

/* An estimate: O and the query throughout, and the larger need of the two products. The first has
 * its scores and two buffers of operands, the second one buffer. */
static int registers_needed(const struct choice *choice) {
    int threads = choice->warps * WARP;
    int output = choice->block_tiles * TILE * choice->dv / threads;
    int scores =
        choice->block_tiles * TILE * choice->block_keys * choice->score_depth_groups / threads;
    int query = choice->query_in_registers ? score_steps(choice) * score_tiles(choice) * 4 : 0;
    int keys = 4 * choice->block_keys / TILE / choice->score_key_groups;
    int first = scores + 2 * (keys + (choice->query_in_registers ? 0 : 4 * score_tiles(choice)));
    int second = 4 * choice->block_tiles / choice->output_head_groups + 4;
    return output + query + (first > second ? first : second) + OTHER_REGISTERS;
}

/* Bytes of shared memory read and written for one key block, gather apart. */
static long shared_traffic(const struct choice *choice) {
    long score_rows = (long)score_tiles(choice) * TILE * !choice->query_in_registers +
                      choice->block_keys / choice->score_key_groups;
    long scores = choice->warps * score_rows * choice->dqk / choice->score_depth_groups * 2;
    long output_rows = (long)choice->block_tiles * TILE / choice->output_head_groups +
                       choice->dv / choice->output_column_groups;
    return scores + 2L * score_bytes(choice) + choice->warps * output_rows * choice->block_keys * 2;
}

static int fits(const struct choice *choice, const struct smelt__arch *arch,
                struct smelt__plan *scratch, struct smelt__misses *misses) {
    add_regions(choice, scratch);
    return smelt__limits_hold(arch, choice->warps * WARP, choice->blocks, scratch->shared_bytes,
                              registers_needed(choice), misses);
}

static int divides(int divisor, int number) {
    return number % divisor == 0;
}

/* The formation of the second product that reads the least, 0 when none is legal: whole tiles of
 * heads times whole pairs of n8 tiles of columns. */
static int choose_output_groups(struct choice *choice) {
    int best = 0, best_rows = 0;
    for (int heads = 1; heads <= choice->warps; heads *= 2) {
        int columns = choice->warps / heads;
        if (!divides(heads, choice->block_tiles) || !divides(columns, choice->dv / TILE))
            continue;
        int rows = choice->block_tiles * TILE / heads + choice->dv / columns;
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

static int score_groups_legal(const struct choice *choice) {
    return choice->score_key_groups > 0 &&
           choice->score_head_groups * choice->score_key_groups * choice->score_depth_groups ==
               choice->warps &&
           divides(choice->score_head_groups, choice->block_tiles) &&
           divides(choice->score_key_groups, choice->block_keys / TILE) &&
           divides(choice->score_depth_groups, choice->dv / TILE) &&
           divides(choice->score_depth_groups, rope_width(choice) / TILE);
}

/* The best formation of both products for a shape, written into *choice. 0 when none fits. */
static int choose_formation(struct choice *choice, const struct smelt__arch *arch,
                            struct smelt__plan *scratch, struct smelt__misses *misses) {
    if (!choose_output_groups(choice))
        return 0;
    struct choice best = *choice;
    long best_traffic = 0;
    for (int heads = 1; heads <= choice->warps; heads *= 2)
        for (int depth = 1; depth <= 4; depth *= 2)
            for (int in_registers = 0; in_registers <= 1; in_registers++) {
                struct choice next = *choice;
                next.score_head_groups = heads;
                next.score_depth_groups = depth;
                next.score_key_groups = choice->warps / (heads * depth);
                next.query_in_registers = in_registers;
                if (in_registers &&
                    (choice->block_tiles > MAX_REGISTER_TILES || choice->dv > MAX_REGISTER_COLUMNS))
                    continue;
                if (!score_groups_legal(&next) || !fits(&next, arch, scratch, misses))
                    continue;
                long traffic = shared_traffic(&next);
                if (!best_traffic || traffic < best_traffic) {
                    best = next;
                    best_traffic = traffic;
                }
            }
    *choice = best;
    return best_traffic != 0;
}

/* A knob's value, or 0 for "the rule decides". */
static int knob(const struct smelt__spec *spec, const char *name) {
    return smelt__spec_knob(spec, name, 0);
}

/* Tries the pipeline shapes that the knobs leave, for a number of warps. Separate rope buffers for
 * every stage are preferred; with two stages one will do, since it is free once the scores are. */
static int choose_shape(struct choice *choice, const struct smelt__spec *spec,
                        const struct smelt__arch *arch, struct smelt__plan *scratch,
                        struct smelt__misses *misses) {
    const int block_keys = knob(spec, "block_keys"), stages = knob(spec, "stages");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if ((block_keys && block_keys != shapes[i].block_keys) ||
            (stages && stages != shapes[i].stages))
            continue;
        choice->block_keys = shapes[i].block_keys;
        choice->stages = shapes[i].stages;
        choice->rope_stages = rope_width(choice) ? choice->stages : 0;
        if (choose_formation(choice, arch, scratch, misses))
            return 1;
        choice->rope_stages = 1;
        if (rope_width(choice) && choice->stages == 2 &&
            choose_formation(choice, arch, scratch, misses))
            return 1;
    }
    return 0;
}

/* Eight warps where they fit: they halve each one's accumulators. */
static int choose_warps(struct choice *choice, const struct smelt__spec *spec,
                        const struct smelt__arch *arch, struct smelt__plan *scratch,
                        struct smelt__misses *misses) {
    const int warps = knob(spec, "warps");
    for (choice->warps = 8; choice->warps >= 4; choice->warps /= 2)
        if ((!warps || warps == choice->warps) && choose_shape(choice, spec, arch, scratch, misses))
            return 1;
    return 0;
}

/* Cuts the heads into the fewest blocks of at most `most` tiles, evenly. */
static void cut_heads(struct choice *choice, int most) {
    int tiles = (choice->heads + TILE - 1) / TILE;
    choice->head_blocks = (tiles + most - 1) / most;
    choice->block_tiles = (tiles + choice->head_blocks - 1) / choice->head_blocks;
    choice->last_block_tiles = tiles - (choice->head_blocks - 1) * choice->block_tiles;
}

/* Two resident blocks hide each other's fixed costs where both fit: short O, few heads. */
static int choose(struct choice *choice, const struct smelt__spec *spec,
                  const struct smelt__arch *arch, struct smelt__plan *scratch,
                  struct smelt__misses *misses) {
    *choice = (struct choice){.heads = (int)smelt__spec_get(spec, "heads"),
                              .dqk = smelt__sparse_attn_columns(spec, "dqk"),
                              .dv = smelt__sparse_attn_columns(spec, "dv")};
    const int blocks = knob(spec, "blocks");
    for (int most = MAX_BLOCK_TILES; most >= 1; most--) {
        cut_heads(choice, most);
        if (choice->last_block_tiles < 1)
            continue;
        for (choice->blocks = blocks ? blocks : 2; choice->blocks >= 1; choice->blocks--) {
            if (blocks ? choice->blocks != blocks : choice->blocks == 2 && choice->block_tiles > 1)
                continue;
            if (choose_warps(choice, spec, arch, scratch, misses))
                return 1;
        }
    }
    return 0;
}

static int has_plan(const struct smelt__spec *spec, const struct smelt__arch *arch) {
    struct choice choice;
    struct smelt__plan scratch = {.arch = arch};
    struct smelt__misses misses = SMELT__NO_MISSES;
    return choose(&choice, spec, arch, &scratch, &misses);
}

static void add_constants(const struct choice *choice, const struct smelt__spec *spec,
                          struct smelt__plan *plan) {
    const int compact = (int)smelt__spec_get(spec, "compact");
    const struct smelt__plan_row constants[] = {
        {"COMPACT", "compact", smelt__spec_get(spec, "compact") == SMELT__AUTO ? 1 : compact,
         "1: masked slots are dropped before the gather"},
        {"BLOCK_KEYS", "block_keys", choice->block_keys, "KV rows of one step of the main loop"},
        {"STAGES", "stages", choice->stages, "key blocks in flight"},
        {"WARPS", "warps", choice->warps, "of a thread block"},
        {"BLOCK_HEADS", NULL, choice->block_tiles * TILE, "heads of a thread block"},
        {"HEAD_BLOCKS", NULL, choice->head_blocks, "thread blocks of a query"},
        {"LAST_BLOCK_TILES", NULL, choice->last_block_tiles,
         "tiles of 16 heads in the last of them"},
        {"RAGGED_HEADS", NULL, choice->last_block_tiles != choice->block_tiles,
         "1: the last one has fewer tiles than the others"},
        {"ROPE_STAGES", NULL, choice->rope_stages, "buffers for the columns that are key alone"},
        {"SCORE_HEAD_GROUPS", NULL, choice->score_head_groups,
         "warps side by side over the heads of QK"},
        {"SCORE_KEY_GROUPS", NULL, choice->score_key_groups, "over its keys"},
        {"SCORE_DEPTH_GROUPS", NULL, choice->score_depth_groups, "over its depth: partial sums"},
        {"QUERY_IN_REGISTERS", NULL, choice->query_in_registers,
         "1: query fragments are loaded once"},
        {"SCORE_UNROLL", NULL, choice->query_in_registers ? choice->dv / TILE : 8,
         "k-steps of QK unrolled; all when the query is in registers"},
        {"OUTPUT_UNROLL", NULL,
         choice->query_in_registers && choice->blocks > 1 ? 1 : choice->block_keys / TILE,
         "k-steps of PV unrolled; one where registers are scarcest"},
        {"ROW_THREADS", NULL, row_threads(choice), "threads of a head in the softmax"},
        {"OUTPUT_HEAD_GROUPS", NULL, choice->output_head_groups,
         "warps side by side over PV's heads"},
        {"OUTPUT_COLUMN_GROUPS", NULL, choice->output_column_groups, "over its columns"},
        {"QUERIES_AHEAD", NULL, WARP, "entries of a query list that a warp holds"},
        {"RING_ENTRIES", NULL, ring_entries(choice), "row numbers the ring holds, a power of two"},
    };
    smelt__sparse_attn_add_columns(spec, plan);
    smelt__plan_add_rows(plan, spec, constants, (int)(sizeof constants / sizeof *constants));
}

int smelt__sparse_attn_fwd_plan_mma(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                    struct smelt__plan *plan, struct smelt__message *message) {
    struct choice choice;
    struct smelt__misses misses = SMELT__NO_MISSES;
    if (!choose(&choice, spec, arch, plan, &misses)) {
        if (smelt__sparse_attn_refuse_widths(spec, arch, has_plan, message))
            return -1;
        smelt__misses_explain(&misses, spec, arch, "fewer block_keys, stages or blocks",
                              "fewer blocks or block_keys or more warps",
                              "stages must be 2..4, block_keys 16, 32, "
                              "64 or 128, warps 4 or 8 such that every warp has whole 16 x 16 "
                              "tiles of both products",
                              message);
        return -1;
    }
    plan->template_name = "sparse_attn_fwd.mma.cu";
    smelt__sparse_attn_fwd_name(spec, plan);
    add_constants(&choice, spec, plan);
    add_regions(&choice, plan);
    smelt__plan_set_threads(plan, choice.warps * WARP, choice.blocks);
    plan->item = "query";
    plan->blocks_per_item = choice.head_blocks;
    return 0;
}
