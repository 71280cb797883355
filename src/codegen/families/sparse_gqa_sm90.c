/*
 * The plans of variant sm90 of sparse_gqa_fwd and sparse_gqa_bwd_keys with granularity 64 and 128, which
 * are block-stationary. The comments at the heads of templates/<family>.sm90.cu explain the numbers.
 *
 * The rules. Forward: three warpgroups compute if their threads' scores and outputs fit into registers,
 * else two. K and V have two buffers, so that the next block arrives while one is in use, if at least one
 * stage for each warpgroup remains. A segment is 32 tiles: K and V are then a sixteenth of the bytes of
 * Q, and items are small enough to balance the multiprocessors.
 *
 * Keys: two warpgroups compute. Shared memory has one block of keys and as many stages as fit. A segment
 * is 64 tiles, so that K, V and the sums of dK and dV are a small part of the traffic.
 */
#include <limits.h>

#include "codegen/families/sparse_gqa.h"
#include "codegen/plan/limits.h"

enum {
    WARPGROUP = 128, /* threads */
    UNIT = 8,        /* heads */
    TILE_ROWS = 64,
    TILE_UNITS = TILE_ROWS / UNIT,
    TILE_COLUMNS = 64,
    ROW_BYTES = 2 * TILE_COLUMNS, /* of a column tile */
    DESCRIPTION = 80,             /* bytes of a tile's description */
    ALIGNMENT = 1024,             /* the swizzle repeats every 1024 bytes */
    BARRIER_BYTES = 8,
    MOST_STAGES = 6,
    /* Forward. */
    SEGMENT_TILES = 32,
    MOST_VALUES = 128, /* scores and output of a thread, with three warpgroups */
    /* Registers of a thread, with three and with two warpgroups that compute. */
    CONSUMER_3 = 152,
    PRODUCER_3 = 56,
    CONSUMER_2 = 232,
    PRODUCER_2 = 40,
    /* Keys. */
    KEY_SEGMENT_TILES = 64,
    KEY_CONSUMERS = 2,
    ALL_ROWS_COLUMNS = 256, /* up to so many, registers leave room for the scores of a whole tile */
    /* Registers of a thread, with and without room for the scores of a whole tile. */
    CONSUMER_ROOM = 224,
    PRODUCER_ROOM = 56,
    CONSUMER_TIGHT = 232,
    PRODUCER_TIGHT = 40,
};

struct choice {
    int dqk, dv, block_keys, units, box_units;
    int consumers, segment, stages;
    int buffers;           /* forward: of K and V */
    int teams, ds_buffers; /* keys: warpgroups of a tile; buffers of a team's dS */
};

/* ---- both ------------------------------------------------------------------------------------ */

static int tiles(int columns) {
    return (columns + TILE_COLUMNS - 1) / TILE_COLUMNS;
}

static struct choice choose(const struct smelt__spec *spec, int segment_tiles) {
    struct choice choice = {.dqk = (int)smelt__spec_get(spec, "dqk"),
                            .dv = (int)smelt__spec_get(spec, "dv"),
                            .block_keys = (int)smelt__spec_get(spec, "granularity"),
                            .units = smelt__sparse_gqa_units(spec)};
    choice.box_units = smelt__sparse_gqa_box_units(choice.units);
    choice.segment = smelt__spec_knob(spec, "segment", segment_tiles * TILE_UNITS / choice.units);
    return choice;
}

/* Checks the limits, and adds all but the constants. `less`: the remedy that the message names. */
static int finish(const struct choice *choice, const struct smelt__spec *spec,
                  const struct smelt__arch *arch, const char *template_name, const char *less,
                  struct smelt__plan *plan, struct smelt__message *message) {
    struct smelt__misses misses = SMELT__NO_MISSES;
    struct smelt__sparse_gqa_launch *const launch = (void *)plan->launch;
    const int threads = (choice->consumers + 1) * WARPGROUP;
    if (!smelt__limits_hold(arch, threads, 1, plan->shared_bytes, 0, &misses)) {
        smelt__misses_explain(&misses, spec, arch, less, less, "", message);
        return -1;
    }
    plan->template_name = template_name;
    smelt__sparse_gqa_name(spec, plan);
    smelt__sparse_gqa_block_constants(spec, plan);
    *launch = (struct smelt__sparse_gqa_launch){
        .segment = choice->segment, .units = choice->units, .box_heads = choice->box_units * UNIT};
    plan->persistent = 1;
    return 0;
}

/* Rows of constants. */
#define SEGMENT(choice)                                                                            \
    { "SEGMENT", "segment", (choice)->segment, "queries of an item" }
#define RACECHECK(spec)                                                                            \
    {                                                                                              \
        "RACECHECK", "racecheck", smelt__spec_knob(spec, "racecheck", 0),                          \
            "1: every lane of a warp arrives at barriers"                                          \
    }
#define STAGES(choice)                                                                             \
    { "STAGES", NULL, (choice)->stages, "tiles of queries in flight" }
#define BLOCKS(choice)                                                                             \
    {"BLOCK_KEYS", NULL, (choice)->block_keys, "keys of a block"}, {                               \
        "BOX_UNITS", NULL, (choice)->box_units, "eights of heads that a box copies"                \
    }
#define REGISTERS(consumer, producer)                                                              \
    {"CONSUMER_REGISTERS", NULL, consumer, "of a thread that computes"}, {                         \
        "PRODUCER_REGISTERS", NULL, producer, "of a thread that copies"                            \
    }

/* ---- forward --------------------------------------------------------------------------------- */

static int add_regions(const struct choice *choice, struct smelt__plan *plan) {
    const int block = choice->block_keys * ROW_BYTES;
    plan->region_count = 0;
    smelt__plan_add_region(plan, "KEYS_OFFSET", choice->buffers * tiles(choice->dqk) * block,
                           ALIGNMENT, "buffers: a block's keys");
    smelt__plan_add_region(plan, "VALUES_OFFSET", choice->buffers * tiles(choice->dv) * block,
                           ALIGNMENT, "buffers: its values");
    smelt__plan_add_region(plan, "QUERY_OFFSET",
                           choice->stages * tiles(choice->dqk) * TILE_ROWS * ROW_BYTES, ALIGNMENT,
                           "stages: tiles of queries");
    smelt__plan_add_region(plan, "TILES_OFFSET", choice->stages * DESCRIPTION, 16,
                           "stages: what their rows are");
    smelt__plan_add_region(plan, "BARRIERS_OFFSET",
                           2 * (choice->stages + choice->buffers) * BARRIER_BYTES, 8, "mbarriers");
    return plan->shared_bytes;
}

/* Two buffers of K and V, and as many stages as fit, if any do; else one. */
static void choose_buffers(const struct smelt__arch *arch, struct choice *choice,
                           struct smelt__plan *plan) {
    const int limit = smelt__shared_of_block(arch, 1);
    for (choice->buffers = 2; choice->buffers >= 1; choice->buffers--)
        for (choice->stages = MOST_STAGES / choice->consumers * choice->consumers;
             choice->stages > 0; choice->stages -= choice->consumers)
            if (add_regions(choice, plan) <= limit)
                return;
    choice->buffers = 1;
    choice->stages = choice->consumers;
}

int smelt__sparse_gqa_fwd_plan_sm90(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                    struct smelt__plan *plan, struct smelt__message *message) {
    if (smelt__refuse_without_warpgroups(spec, arch, message))
        return -1;
    if (smelt__spec_get(spec, "granularity") < SMELT__SPARSE_GQA_BLOCK)
        return smelt__sparse_gqa_fwd_plan_few(spec, arch, plan, message);
    struct choice choice = choose(spec, SEGMENT_TILES);
    choice.consumers = smelt__spec_knob(spec, "consumers",
                                        (choice.dv + choice.block_keys) / 2 <= MOST_VALUES ? 3 : 2);
    choose_buffers(arch, &choice, plan);
    if (finish(&choice, spec, arch, "sparse_gqa_fwd.sm90.cu", "fewer consumers", plan, message) !=
        0)
        return -1;
    const int three = choice.consumers > 2;
    const struct smelt__plan_row constants[] = {
        {"CONSUMERS", "consumers", choice.consumers, "warpgroups that compute"},
        SEGMENT(&choice),
        RACECHECK(spec),
        STAGES(&choice),
        {"KV_BUFFERS", NULL, choice.buffers, "blocks of keys in flight"},
        BLOCKS(&choice),
        REGISTERS(three ? CONSUMER_3 : CONSUMER_2, three ? PRODUCER_3 : PRODUCER_2),
    };
    smelt__plan_add_rows(plan, spec, constants, (int)(sizeof constants / sizeof *constants));
    smelt__plan_set_threads(plan, (choice.consumers + 1) * WARPGROUP, 1);
    return 0;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static int add_key_regions(const struct choice *choice, struct smelt__plan *plan) {
    const int block = choice->block_keys * ROW_BYTES, tile = TILE_ROWS * ROW_BYTES;
    const int keys = tiles(choice->dqk), values = tiles(choice->dv), stages = choice->stages;
    plan->region_count = 0;
    smelt__plan_add_region(plan, "KEYS_OFFSET", keys * block, ALIGNMENT, "a block's keys");
    smelt__plan_add_region(plan, "VALUES_OFFSET", values * block, ALIGNMENT, "its values");
    smelt__plan_add_region(plan, "QUERY_OFFSET", stages * keys * tile, ALIGNMENT,
                           "stages: tiles of queries");
    smelt__plan_add_region(plan, "GRAD_OFFSET", stages * values * tile, ALIGNMENT,
                           "stages: tiles of the output's gradient");
    smelt__plan_add_region(plan, "DS_OFFSET", choice->teams * choice->ds_buffers * block, ALIGNMENT,
                           "teams, buffers: a tile's dS");
    smelt__plan_add_region(plan, "ROWS_OFFSET", stages * TILE_ROWS * 8, 16,
                           "stages: base and delta of their rows");
    smelt__plan_add_region(plan, "TILES_OFFSET", stages * DESCRIPTION, 16,
                           "stages: what their rows are");
    smelt__plan_add_region(plan, "BARRIERS_OFFSET", (2 * stages + 2) * BARRIER_BYTES, 8,
                           "mbarriers");
    return plan->shared_bytes;
}

/* As many stages as fit, a multiple of the teams. */
static void choose_stages(const struct smelt__arch *arch, struct choice *choice,
                          struct smelt__plan *plan) {
    const int limit = smelt__shared_of_block(arch, 1);
    choice->consumers = KEY_CONSUMERS;
    choice->teams = KEY_CONSUMERS * TILE_ROWS / choice->block_keys;
    choice->ds_buffers = choice->teams > 1 ? 1 : 2;
    choice->stages = MOST_STAGES / choice->teams * choice->teams;
    while (add_key_regions(choice, plan) > limit && choice->stages > choice->teams)
        choice->stages -= choice->teams;
}

int smelt__sparse_gqa_bwd_keys_plan_sm90(const struct smelt__spec *spec,
                                         const struct smelt__arch *arch, struct smelt__plan *plan,
                                         struct smelt__message *message) {
    if (smelt__refuse_without_warpgroups(spec, arch, message))
        return -1;
    if (smelt__spec_get(spec, "granularity") < SMELT__SPARSE_GQA_BLOCK)
        return smelt__sparse_gqa_bwd_keys_plan_few(spec, arch, plan, message);
    if (!smelt__sparse_gqa_grad_may_be_block(spec)) {
        smelt__message_set(
            message, "%s: variant sm90 with granularity 64 or 128 needs dqk + dv of at most %d",
            spec->schema->name, SMELT__SPARSE_GQA_MOST_COLUMNS);
        return -1;
    }
    struct choice choice = choose(spec, KEY_SEGMENT_TILES);
    choose_stages(arch, &choice, plan);
    if (finish(&choice, spec, arch, "sparse_gqa_bwd_keys.sm90.cu", "smaller widths", plan,
               message) != 0)
        return -1;
    const int tight = choice.dqk + choice.dv > ALL_ROWS_COLUMNS;
    const struct smelt__plan_row constants[] = {
        SEGMENT(&choice),
        {"SCORE_ROWS", NULL, tight ? TILE_ROWS / 2 : TILE_ROWS,
         "of a tile whose scores a thread has at once"},
        RACECHECK(spec),
        STAGES(&choice),
        {"DS_BUFFERS", NULL, choice.ds_buffers, "of dS of a team"},
        BLOCKS(&choice),
        REGISTERS(tight ? CONSUMER_TIGHT : CONSUMER_ROOM, tight ? PRODUCER_TIGHT : PRODUCER_ROOM),
    };
    struct smelt__sparse_gqa_launch *const launch = (void *)plan->launch;
    smelt__plan_add_rows(plan, spec, constants, (int)(sizeof constants / sizeof *constants));
    smelt__plan_set_threads(plan, (choice.consumers + 1) * WARPGROUP, 1);
    launch->warpgroups = KEY_CONSUMERS;
    if (choice.dqk == 192 && choice.dv == 128) /* three times as fast as mma in spite of it */
        plan->spill_bytes = 16;
    return 0;
}
