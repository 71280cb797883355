/*
 * The kernel family sparse_gqa_bwd_keys: the plan of its variant sm90. The comment at the head of
 * templates/sparse_gqa_bwd_keys.sm90.cu explains the numbers.
 *
 * The rule. Two warpgroups compute. Shared memory has one block of keys and as many stages as fit. A
 * segment is 64 tiles, so that K, V and the sums of dK and dV are a small part of the traffic.
 */
#include <limits.h>
#include <string.h>

#include "codegen/families/sparse_gqa.h"
#include "codegen/families/sparse_gqa_block.h"
#include "codegen/families/sparse_gqa_keys.h"
#include "codegen/plan/limits.h"

enum {
    WARPGROUP = 128, /* threads */
    UNIT = 8,        /* heads */
    TILE_ROWS = 64,
    TILE_UNITS = TILE_ROWS / UNIT,
    TILE_COLUMNS = 64,
    ROW_BYTES = 2 * TILE_COLUMNS, /* of a column tile */
    DESCRIPTION = 80,             /* bytes of a tile's */
    ALIGNMENT = 1024,             /* the swizzle repeats every 1024 bytes */
    BARRIER_BYTES = 8,
    LEAST_GRANULARITY = 64,
    SEGMENT_TILES = 64,
    MOST_STAGES = 6,
    MOST_COLUMNS = 320,     /* of dK and dV, which a thread has a 128th of for 64 keys */
    ALL_ROWS_COLUMNS = 256, /* up to so many, registers leave room for the scores of a whole tile */
    CONSUMERS = 2,
    /* Registers of a thread, with and without room for the scores of a whole tile. */
    CONSUMER_ROOM = 224,
    PRODUCER_ROOM = 56,
    CONSUMER_TIGHT = 232,
    PRODUCER_TIGHT = 40,
};

struct choice {
    int dqk, dv, block_keys, units, box_units;
    int teams, ds_buffers, stages, segment;
};

static int can_be_block(const struct smelt__spec *spec) {
    return smelt__spec_get(spec, "granularity") >= LEAST_GRANULARITY &&
           smelt__spec_get(spec, "dqk") + smelt__spec_get(spec, "dv") <= MOST_COLUMNS;
}

int smelt__sparse_gqa_grad_may_be_block(const struct smelt__spec *spec) {
    const int64_t variant = smelt__spec_get(spec, "variant");
    return can_be_block(spec) &&
           (variant == SMELT__AUTO || strcmp(smelt__spec_choice(spec, "variant"), "sm90") == 0);
}

static int tiles(int columns) {
    return (columns + TILE_COLUMNS - 1) / TILE_COLUMNS;
}

static int add_regions(const struct choice *choice, struct smelt__plan *plan) {
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
    choice->stages = MOST_STAGES / choice->teams * choice->teams;
    while (add_regions(choice, plan) > limit && choice->stages > choice->teams)
        choice->stages -= choice->teams;
}

static void add_constants(const struct choice *choice, const struct smelt__spec *spec,
                          struct smelt__plan *plan) {
    const int tight = choice->dqk + choice->dv > ALL_ROWS_COLUMNS;
    const struct smelt__plan_row constants[] = {
        {"SEGMENT", "segment", choice->segment, "queries of an item"},
        {"SCORE_ROWS", NULL, tight ? TILE_ROWS / 2 : TILE_ROWS,
         "of a tile whose scores a thread has at once"},
        {"RACECHECK", "racecheck", smelt__spec_knob(spec, "racecheck", 0),
         "1: every lane of a warp arrives at barriers"},
        {"STAGES", NULL, choice->stages, "tiles of queries in flight"},
        {"DS_BUFFERS", NULL, choice->ds_buffers, "of dS of a team"},
        {"BLOCK_KEYS", NULL, choice->block_keys, "keys of a block"},
        {"BOX_UNITS", NULL, choice->box_units, "eights of heads that a box copies"},
        {"CONSUMER_REGISTERS", NULL, tight ? CONSUMER_TIGHT : CONSUMER_ROOM,
         "of a thread that computes"},
        {"PRODUCER_REGISTERS", NULL, tight ? PRODUCER_TIGHT : PRODUCER_ROOM,
         "of a thread that copies"},
    };
    struct smelt__sparse_gqa_block_launch *const launch = (void *)plan->launch;
    smelt__sparse_gqa_block_constants(spec, plan);
    smelt__plan_add_rows(plan, spec, constants, (int)(sizeof constants / sizeof *constants));
    *launch = (struct smelt__sparse_gqa_block_launch){.segment = choice->segment,
                                                      .units = choice->units,
                                                      .box_heads = choice->box_units * UNIT,
                                                      .warpgroups = CONSUMERS};
}

static void choose(const struct smelt__spec *spec, struct choice *choice) {
    choice->dqk = (int)smelt__spec_get(spec, "dqk");
    choice->dv = (int)smelt__spec_get(spec, "dv");
    choice->block_keys = (int)smelt__spec_get(spec, "granularity");
    choice->units = smelt__sparse_gqa_units(spec);
    choice->box_units = smelt__sparse_gqa_box_units(choice->units);
    choice->teams = CONSUMERS * TILE_ROWS / choice->block_keys;
    choice->ds_buffers = choice->teams > 1 ? 1 : 2;
    choice->segment = smelt__spec_knob(spec, "segment", SEGMENT_TILES * TILE_UNITS / choice->units);
}

int smelt__sparse_gqa_bwd_keys_plan_sm90(const struct smelt__spec *spec,
                                         const struct smelt__arch *arch, struct smelt__plan *plan,
                                         struct smelt__message *message) {
    const int threads = (CONSUMERS + 1) * WARPGROUP;
    struct smelt__misses misses = SMELT__NO_MISSES;
    struct choice choice;
    if (smelt__refuse_without_warpgroups(spec, arch, message))
        return -1;
    if (smelt__spec_get(spec, "granularity") < LEAST_GRANULARITY)
        return smelt__sparse_gqa_bwd_keys_plan_few(spec, arch, plan);
    if (!can_be_block(spec)) {
        smelt__message_set(
            message, "%s: variant sm90 with granularity 64 or 128 needs dqk + dv of at most %d",
            spec->schema->name, MOST_COLUMNS);
        return -1;
    }
    choose(spec, &choice);
    choose_stages(arch, &choice, plan);
    if (!smelt__limits_hold(arch, threads, 1, plan->shared_bytes, 0, &misses)) {
        smelt__misses_explain(&misses, spec, arch, "smaller widths", "smaller widths", "", message);
        return -1;
    }
    plan->template_name = "sparse_gqa_bwd_keys.sm90.cu";
    smelt__sparse_gqa_name(spec, plan);
    add_constants(&choice, spec, plan);
    smelt__plan_set_threads(plan, threads, 1);
    if (choice.dqk == 192 && choice.dv == 128) /* three times as fast as mma in spite of it */
        plan->spill_bytes = 16;
    plan->persistent = 1;
    return 0;
}
