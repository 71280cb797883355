/*
 * The kernel family sparse_gqa_fwd: the plan of its variant sm90. The comment at the head of
 * templates/sparse_gqa_fwd.sm90.cu explains the numbers.
 *
 * The rule. Three warpgroups compute where a thread's scores and output leave room for three, else
 * two. K and V have two buffers if at least one stage of each warpgroup remains, so that the next
 * block arrives while one is in use. A segment is 32 tiles: K and V are then a sixteenth of the
 * bytes of Q, and items are small enough to balance the multiprocessors.
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
    MOST_UNITED_VALUES = 256,
    SEGMENT_TILES = 32,
    MOST_STAGES = 6,
    MOST_VALUES = 128, /* scores and output of a thread, with three warpgroups */
    /* Registers of a thread, with three and with two warpgroups that compute. */
    CONSUMER_3 = 152,
    PRODUCER_3 = 56,
    CONSUMER_2 = 232,
    PRODUCER_2 = 40,
};

struct choice {
    int dqk, dv, block_keys, units, box_units;
    int consumers, stages, buffers, segment;
};

int smelt__sparse_gqa_units(const struct smelt__spec *spec) {
    const int group = (int)smelt__spec_get(spec, "heads") / (int)smelt__spec_get(spec, "kv_heads");
    return (group + UNIT - 1) / UNIT;
}

int smelt__sparse_gqa_box_units(int units) {
    int box = TILE_UNITS;
    while (units % box != 0)
        box /= 2;
    return box;
}

void smelt__sparse_gqa_block_constants(const struct smelt__spec *spec, struct smelt__plan *plan) {
    const int shared = smelt__spec_get(spec, "lists") == SMELT__SPARSE_GQA_SHARED;
    smelt__plan_add(plan, "LIST_HEADS", shared ? (int)smelt__spec_get(spec, "kv_heads") : 1,
                    SMELT__DERIVED, "KV heads that share a list");
    smelt__plan_add(plan, "UNITS", smelt__sparse_gqa_units(spec), SMELT__DERIVED,
                    "eights of a KV head's query heads");
}

int smelt__sparse_gqa_may_be_block(const struct smelt__spec *spec) {
    const int64_t variant = smelt__spec_get(spec, "variant");
    return smelt__spec_get(spec, "granularity") >= LEAST_GRANULARITY &&
           (variant == SMELT__AUTO || strcmp(smelt__spec_choice(spec, "variant"), "sm90") == 0);
}

/* Whether sparse_gqa_united has a plan: its two warpgroups have registers for MOST_UNITED_VALUES scores
 * and output columns of a row. */
int smelt__sparse_gqa_can_unite(const struct smelt__spec *spec) {
    return smelt__spec_get(spec, "granularity") >= LEAST_GRANULARITY &&
           TILE_UNITS % smelt__sparse_gqa_units(spec) == 0 &&
           smelt__spec_get(spec, "dv") + smelt__spec_get(spec, "granularity") <= MOST_UNITED_VALUES;
}

int smelt__sparse_gqa_may_be_united(const struct smelt__spec *spec) {
    return smelt__sparse_gqa_may_be_block(spec) && smelt__spec_get(spec, "unite") &&
           smelt__sparse_gqa_can_unite(spec);
}

static int tiles(int columns) {
    return (columns + TILE_COLUMNS - 1) / TILE_COLUMNS;
}

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

static void add_constants(const struct choice *choice, const struct smelt__spec *spec,
                          struct smelt__plan *plan) {
    const int three = choice->consumers > 2;
    const struct smelt__plan_row constants[] = {
        {"CONSUMERS", "consumers", choice->consumers, "warpgroups that compute"},
        {"SEGMENT", "segment", choice->segment, "queries of an item"},
        {"RACECHECK", "racecheck", smelt__spec_knob(spec, "racecheck", 0),
         "1: every lane of a warp arrives at barriers"},
        {"STAGES", NULL, choice->stages, "tiles of queries in flight"},
        {"KV_BUFFERS", NULL, choice->buffers, "blocks of keys in flight"},
        {"BLOCK_KEYS", NULL, choice->block_keys, "keys of a block"},
        {"BOX_UNITS", NULL, choice->box_units, "eights of heads that a box copies"},
        {"CONSUMER_REGISTERS", NULL, three ? CONSUMER_3 : CONSUMER_2, "of a thread that computes"},
        {"PRODUCER_REGISTERS", NULL, three ? PRODUCER_3 : PRODUCER_2, "of a thread that copies"},
    };
    struct smelt__sparse_gqa_block_launch *const launch = (void *)plan->launch;
    smelt__sparse_gqa_block_constants(spec, plan);
    smelt__plan_add_rows(plan, spec, constants, (int)(sizeof constants / sizeof *constants));
    *launch = (struct smelt__sparse_gqa_block_launch){
        .segment = choice->segment, .units = choice->units, .box_heads = choice->box_units * UNIT};
}

static void choose(const struct smelt__spec *spec, struct choice *choice) {
    choice->dqk = (int)smelt__spec_get(spec, "dqk");
    choice->dv = (int)smelt__spec_get(spec, "dv");
    choice->block_keys = (int)smelt__spec_get(spec, "granularity");
    choice->units = smelt__sparse_gqa_units(spec);
    choice->box_units = smelt__sparse_gqa_box_units(choice->units);
    choice->consumers = smelt__spec_knob(
        spec, "consumers", (choice->dv + choice->block_keys) / 2 <= MOST_VALUES ? 3 : 2);
    choice->segment = smelt__spec_knob(spec, "segment", SEGMENT_TILES * TILE_UNITS / choice->units);
}

int smelt__sparse_gqa_fwd_plan_sm90(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                    struct smelt__plan *plan, struct smelt__message *message) {
    struct smelt__misses misses = SMELT__NO_MISSES;
    struct choice choice;
    if (smelt__refuse_without_warpgroups(spec, arch, message))
        return -1;
    if (smelt__spec_get(spec, "granularity") < LEAST_GRANULARITY)
        return smelt__sparse_gqa_fwd_plan_few(spec, arch, plan, message);
    choose(spec, &choice);
    choose_buffers(arch, &choice, plan);
    const int threads = (choice.consumers + 1) * WARPGROUP;
    if (!smelt__limits_hold(arch, threads, 1, plan->shared_bytes, 0, &misses)) {
        smelt__misses_explain(&misses, spec, arch, "fewer consumers", "fewer consumers", "",
                              message);
        return -1;
    }
    plan->template_name = "sparse_gqa_fwd.sm90.cu";
    smelt__sparse_gqa_name(spec, plan);
    add_constants(&choice, spec, plan);
    smelt__plan_set_threads(plan, threads, 1);
    plan->persistent = 1;
    return 0;
}
