/*
 * The plans of the block-stationary kernels, with granularity 64 and 128: variant sm90 of sparse_gqa_fwd and
 * sparse_gqa_bwd_keys, and the family sparse_gqa_united, the forward kernel for tiles of queries whose lists
 * are united. The comments at the heads of templates/<family>.sm90.cu explain the numbers.
 *
 * The rules. Forward: three warpgroups compute if their threads' scores and outputs fit into registers,
 * else two. K and V have two buffers, so that the next block arrives while one is in use, if at least one
 * stage for each warpgroup remains. A segment is 32 tiles: K and V are then a sixteenth of the bytes of
 * Q, and items are small enough to balance the multiprocessors.
 *
 * Keys: two warpgroups compute. Shared memory has one block of keys and as many stages as fit. A segment
 * is 64 tiles, so that K, V and the sums of dK and dV are a small part of the traffic.
 *
 * United: two warpgroups compute: they have the registers to overlap a block's P V with the next block's
 * softmax. If shared memory has room, K and V have three buffers, so that the next block is copied while
 * the warpgroups work on two different ones; then Q has two; then K and V get more.
 */
#include "codegen/families/sparse_gqa.h"
#include "codegen/plan/search.h"

enum {
    TILE_ROWS = 64,
    TILE_UNITS = TILE_ROWS / SMELT__GQA_UNIT,
    DESCRIPTION = 80, /* bytes of a tile's description */
    STEP_BYTES = 8,   /* bytes of a step's description, united */
    /* Forward. */
    SEGMENT_TILES = 32,
    MOST_VALUES = 128, /* scores and output of a thread, with three warpgroups */
    /* Keys. */
    KEY_SEGMENT_TILES = 64,
    MOST_COLUMNS = 320, /* dqk + dv: a thread has a 128th of dK and dV for 64 keys */
    ALL_ROWS_COLUMNS =
        256, /* up to this number there are registers for the scores of a whole tile */
    /* United. */
    MOST_UNITED_VALUES = 256, /* scores and outputs of a row in the registers of its warpgroup */
    /* With more, a part has two queries at most, and computes a block for at most two pairs: uniting would be
     * slower (MOST_TILE_COST in ops/sparse_gqa_index.c). */
    MOST_UNITED_UNITS = 2,
};

/* Registers of a thread that computes, and of one that copies. */
static const struct registers {
    int consumer, producer;
} of_three = {152, 56}, of_two = {232, 40}, of_keys = {224, 56}, of_wide_keys = {232, 40},
  of_united = {216, 72};

/* Buffers of K and V and of Q, in order of preference. */
static const struct {
    int buffers, queries;
} united_buffers[] = {{4, 2}, {3, 2}, {4, 1}, {3, 1}, {2, 2}, {2, 1}, {1, 2}, {1, 1}};

struct smelt__choice {
    struct smelt__gqa_shape shape;
    int consumers;
    int buffers;       /* of K and V */
    int teams, stages; /* tiles of queries in flight, a multiple of the teams that share them */
    int ds_buffers;    /* keys: buffers of a team's dS */
    int row, queries;  /* united: row of united_buffers; buffers of Q */
};

/* ---- all of them ----------------------------------------------------------------------------- */

/* The units of a box: the largest common divisor of a KV head's and a tile's units. */
static int box_units(int units) {
    int box = TILE_UNITS;
    while (units % box != 0)
        box /= 2;
    return box;
}

/* Initialises the choice of a kernel with two warpgroups that compute. */
static void begin(struct smelt__choice *choice, const struct smelt__spec *spec) {
    *choice = (struct smelt__choice){.shape = smelt__sparse_gqa_shape(spec),
                                     .consumers = SMELT__GQA_CONSUMERS};
}

static void add_blocks(const struct smelt__choice *choice, struct smelt__plan *plan) {
    const int keys = choice->buffers * choice->shape.granularity;
    smelt__gqa_add_tiles(plan, "KEYS_OFFSET", keys, choice->shape.dqk,
                         "a block's keys, in each buffer");
    smelt__gqa_add_tiles(plan, "VALUES_OFFSET", keys, choice->shape.dv,
                         "its values, in each buffer");
}

/* Adds what all these kernels' plans have, except for the regions. */
static void finish(const struct smelt__choice *choice, const struct smelt__spec *spec,
                   struct registers registers, struct smelt__plan *plan) {
    smelt__sparse_gqa_name_block(spec, plan);
    SMELT__PLAN_ADD(
        plan, spec,
        {"RACECHECK", "racecheck", smelt__spec_knob(spec, "racecheck", 0),
         "1: every lane of a warp arrives at barriers"},
        {"BLOCK_KEYS", NULL, choice->shape.granularity, "keys of a block"},
        {"BOX_UNITS", NULL, box_units(choice->shape.units), "groups of 8 heads that a box copies"},
        {"CONSUMER_REGISTERS", NULL, registers.consumer, "registers of a thread that computes"},
        {"PRODUCER_REGISTERS", NULL, registers.producer, "registers of a thread that copies"});
    smelt__plan_set_threads(plan, (choice->consumers + 1) * SMELT__WARPGROUP, 1);
    plan->persistent = 1;
}

/* ---- kernels whose items are segments: forward, keys ------------------------------------------ */

static void add_regions(const struct smelt__choice *choice, struct smelt__plan *plan) {
    const int stages = choice->stages;
    add_blocks(choice, plan);
    smelt__gqa_add_tiles(plan, "QUERY_OFFSET", stages * TILE_ROWS, choice->shape.dqk,
                         "tiles of queries, in each stage");
    if (choice->ds_buffers) {
        smelt__gqa_add_tiles(plan, "GRAD_OFFSET", stages * TILE_ROWS, choice->shape.dv,
                             "tiles of the output's gradient, in each stage");
        smelt__gqa_add_tiles(plan, "DS_OFFSET",
                             choice->teams * choice->ds_buffers * choice->shape.granularity,
                             TILE_ROWS, "a tile's dS, in each team's buffers");
        smelt__plan_add_region(plan, "ROWS_OFFSET", stages * TILE_ROWS * 8, 16,
                               "base and delta of their rows, in each stage");
    }
    smelt__plan_add_region(plan, "TILES_OFFSET", stages * DESCRIPTION, 16,
                           "description of the tile's rows, in each stage");
    smelt__plan_add_region(plan, "BARRIERS_OFFSET", 2 * (stages + choice->buffers) * 8, 8,
                           "mbarriers");
}

/* For keys one. */
static int buffers_legal(struct smelt__choice *choice) {
    return !choice->ds_buffers || choice->buffers == 1;
}

static int stages_legal(struct smelt__choice *choice) {
    return choice->stages % choice->teams == 0;
}

/* As many buffers of K and V and, then, as many stages as fit. */
static const struct smelt__axis axes[] = {
    SMELT__AXIS(buffers, NULL, buffers_legal, 2, 1),
    SMELT__AXIS(stages, NULL, stages_legal, 6, 5, 4, 3, 2, 1),
};

/* Adds the constants and the launch data of a kernel whose items are segments. */
static void add_segment(const struct smelt__choice *choice, const struct smelt__spec *spec,
                        int segment_tiles, struct smelt__plan *plan) {
    struct smelt__sparse_gqa_launch *const launch = (void *)plan->launch;
    const int segment =
        smelt__spec_knob(spec, "segment", segment_tiles * TILE_UNITS / choice->shape.units);
    SMELT__PLAN_ADD(plan, spec, {"SEGMENT", "segment", segment, "queries of an item"},
                    {"STAGES", NULL, choice->stages, "tiles of queries in flight"});
    launch->segment = segment;
    launch->box_heads = box_units(choice->shape.units) * SMELT__GQA_UNIT;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Each warpgroup is a team: it computes whole tiles. */
static void begin_forward(struct smelt__choice *choice, const struct smelt__spec *spec) {
    begin(choice, spec);
    const int values = (choice->shape.dv + choice->shape.granularity) / 2;
    choice->consumers = smelt__spec_knob(spec, "consumers", values <= MOST_VALUES ? 3 : 2);
    choice->teams = choice->consumers;
}

static const struct smelt__search search = {
    SMELT__AXES(axes),
    .begin = begin_forward,
    .add_regions = add_regions,
    .less_shared = "fewer consumers",
};

int smelt__sparse_gqa_fwd_plan_sm90(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                    struct smelt__plan *plan, struct smelt__message *message) {
    struct smelt__choice choice;
    if (smelt__spec_get(spec, "granularity") < SMELT__GQA_BLOCK)
        return smelt__sparse_gqa_fwd_plan_few(spec, arch, plan, message);
    if (smelt__search_plan(&search, spec, arch, &choice, plan, message))
        return -1;
    finish(&choice, spec, choice.consumers > 2 ? of_three : of_two, plan);
    SMELT__PLAN_ADD(plan, spec,
                    {"CONSUMERS", "consumers", choice.consumers, "warpgroups that compute"},
                    {"KV_BUFFERS", NULL, choice.buffers, "blocks of keys in flight"});
    add_segment(&choice, spec, SEGMENT_TILES, plan);
    return 0;
}

/* ---- keys ------------------------------------------------------------------------------------ */

int smelt__sparse_gqa_grad_may_be_block(const struct smelt__gqa_shape *shape) {
    return shape->granularity >= SMELT__GQA_BLOCK && shape->dqk + shape->dv <= MOST_COLUMNS;
}

static void begin_keys(struct smelt__choice *choice, const struct smelt__spec *spec) {
    begin(choice, spec);
    choice->teams = choice->consumers * TILE_ROWS / choice->shape.granularity;
    choice->ds_buffers = choice->teams > 1 ? 1 : 2;
}

static const struct smelt__search key_search = {
    SMELT__AXES(axes),
    .begin = begin_keys,
    .add_regions = add_regions,
    .less_shared = "smaller widths",
};

int smelt__sparse_gqa_bwd_keys_plan_sm90(const struct smelt__spec *spec,
                                         const struct smelt__arch *arch, struct smelt__plan *plan,
                                         struct smelt__message *message) {
    struct smelt__choice choice;
    if (smelt__spec_get(spec, "granularity") < SMELT__GQA_BLOCK)
        return smelt__sparse_gqa_bwd_keys_plan_few(spec, arch, plan, message);
    const struct smelt__gqa_shape shape = smelt__sparse_gqa_shape(spec);
    if (!smelt__sparse_gqa_grad_may_be_block(&shape))
        return smelt__spec_refuse(
            spec, message, "variant sm90 with granularity 64 or 128 needs dqk + dv of at most %d",
            MOST_COLUMNS);
    if (smelt__search_plan(&key_search, spec, arch, &choice, plan, message))
        return -1;
    const int wide = shape.dqk + shape.dv > ALL_ROWS_COLUMNS;
    finish(&choice, spec, wide ? of_wide_keys : of_keys, plan);
    SMELT__PLAN_ADD(plan, spec,
                    {"SCORE_ROWS", NULL, wide ? TILE_ROWS / 2 : TILE_ROWS,
                     "rows of a tile whose scores a thread has at once"},
                    {"DS_BUFFERS", NULL, choice.ds_buffers, "buffers of a team's dS"});
    add_segment(&choice, spec, KEY_SEGMENT_TILES, plan);
    if (shape.dqk == 192 && shape.dv == 128) /* in spite of the spills three times as fast as mma */
        plan->spill_bytes = 16;
    return 0;
}

/* ---- united ---------------------------------------------------------------------------------- */

static const struct smelt__key united_keys[] = {
    SMELT__GQA_SHAPE,
    {SMELT__SINK_KEY},
    {SMELT__RACECHECK_KNOB},
};

int smelt__sparse_gqa_can_unite(const struct smelt__gqa_shape *shape) {
    return shape->granularity >= SMELT__GQA_BLOCK && shape->units <= MOST_UNITED_UNITS &&
           shape->dv + shape->granularity <= MOST_UNITED_VALUES;
}

static int take_buffers(struct smelt__choice *choice) {
    choice->buffers = united_buffers[choice->row].buffers;
    choice->queries = united_buffers[choice->row].queries;
    return 1;
}

static void add_united_regions(const struct smelt__choice *choice, struct smelt__plan *plan) {
    const int tiles_of_queries = choice->queries * choice->consumers;
    smelt__gqa_add_tiles(plan, "QUERY_OFFSET", tiles_of_queries * TILE_ROWS, choice->shape.dqk,
                         "tiles of queries, in each buffer");
    add_blocks(choice, plan);
    smelt__plan_add_region(plan, "STEPS_OFFSET", choice->buffers * STEP_BYTES, 8,
                           "description of the block, in each buffer");
    smelt__plan_add_region(plan, "ITEMS_OFFSET",
                           tiles_of_queries * (2 + 2 * TILE_UNITS / choice->shape.units) * 4, 4,
                           "description of the item, in each buffer");
    smelt__plan_add_region(plan, "BARRIERS_OFFSET",
                           (2 * tiles_of_queries + 4 * choice->buffers) * 8, 8, "mbarriers");
}

static const struct smelt__axis united_axes[] = {
    SMELT__AXIS_INDICES(row, take_buffers, united_buffers)};
static const struct smelt__search united_search = {
    SMELT__AXES(united_axes),
    .begin = begin,
    .add_regions = add_united_regions,
    .less_shared = "smaller widths",
};

static int plan_united(const struct smelt__spec *spec, const struct smelt__arch *arch,
                       struct smelt__plan *plan, struct smelt__message *message) {
    struct smelt__sparse_gqa_launch *const launch = (void *)plan->launch;
    const struct smelt__gqa_shape shape = smelt__sparse_gqa_shape(spec);
    struct smelt__choice choice;
    if (!smelt__sparse_gqa_can_unite(&shape))
        return smelt__spec_refuse(spec, message,
                                  "variant sm90 needs granularity 64 or 128, dv + granularity at "
                                  "most %d, and at most %d heads of a KV head",
                                  MOST_UNITED_VALUES, MOST_UNITED_UNITS * SMELT__GQA_UNIT);
    if (smelt__search_plan(&united_search, spec, arch, &choice, plan, message))
        return -1;
    finish(&choice, spec, of_united, plan);
    SMELT__PLAN_ADD(plan, spec,
                    {"HAS_SINK", NULL, (int)smelt__spec_get(spec, "sink"),
                     "1: a logit per head in the denominator"},
                    {"CONSUMERS", NULL, choice.consumers, "warpgroups that compute"},
                    {"Q_BUFFERS", NULL, choice.queries, "tiles of queries in flight"},
                    {"STAGES", NULL, choice.buffers, "blocks of keys in flight"});
    launch->queries = choice.consumers * (TILE_UNITS / shape.units);
    return 0;
}

const struct smelt__kernel_family smelt__sparse_gqa_united = {
    .schema = {.name = "sparse_gqa_united",
               .summary = "forward pass of sparse_gqa for queries whose lists are united",
               SMELT__KEYS(united_keys),
               .check = smelt__sparse_gqa_check},
    SMELT__VARIANTS({"sm90", plan_united}),
};
