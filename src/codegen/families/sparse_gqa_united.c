/*
 * The kernel family sparse_gqa_united: the forward kernel of sparse_gqa for tiles of queries whose
 * lists are united. The comment at the head of templates/sparse_gqa_united.sm90.cu explains the numbers.
 *
 * The rule. Two warpgroups compute: they have the registers to overlap a block's P V with the next
 * block's softmax. If shared memory has room, K and V have three buffers, so that the next block is copied
 * while the warpgroups work on two different ones; then Q has two; then K and V get more.
 */
#include <limits.h>

#include "codegen/families/sparse_gqa.h"
#include "codegen/plan/limits.h"

enum {
    WARPGROUP = 128, /* threads */
    TILE_ROWS = 64,
    TILE_UNITS = TILE_ROWS / 8,
    TILE_COLUMNS = 64,
    ROW_BYTES = 2 * TILE_COLUMNS, /* of a column tile */
    STEP_BYTES = 8,
    ALIGNMENT = 1024, /* the swizzle repeats every 1024 bytes */
    BARRIER_BYTES = 8,
    MOST_BUFFERS = 4,
    CONSUMERS = 2,
    CONSUMER_REGISTERS = 216,
    PRODUCER_REGISTERS = 72,
};

static const struct smelt__key keys[] = {
    SMELT__GQA_KEY_SHAPE,
    SMELT__GQA_KEY_SINK,
    {SMELT__RACECHECK_KNOB},
};

struct choice {
    int dqk, dv, block_keys, units;
    int queries, buffers; /* buffers of Q; of K and V */
};

static int tiles(int columns) {
    return (columns + TILE_COLUMNS - 1) / TILE_COLUMNS;
}

static int add_regions(const struct choice *choice, struct smelt__plan *plan) {
    const int block = choice->block_keys * ROW_BYTES;
    plan->region_count = 0;
    smelt__plan_add_region(plan, "QUERY_OFFSET",
                           choice->queries * CONSUMERS * tiles(choice->dqk) * TILE_ROWS * ROW_BYTES,
                           ALIGNMENT, "buffers: tiles of queries");
    smelt__plan_add_region(plan, "KEYS_OFFSET", choice->buffers * tiles(choice->dqk) * block,
                           ALIGNMENT, "buffers: a block's keys");
    smelt__plan_add_region(plan, "VALUES_OFFSET", choice->buffers * tiles(choice->dv) * block,
                           ALIGNMENT, "buffers: its values");
    smelt__plan_add_region(plan, "STEPS_OFFSET", choice->buffers * STEP_BYTES, 8,
                           "buffers: what the block is");
    smelt__plan_add_region(plan, "ITEMS_OFFSET",
                           choice->queries * CONSUMERS * (2 + 2 * TILE_UNITS / choice->units) * 4,
                           4, "buffers: what the item is");
    smelt__plan_add_region(plan, "BARRIERS_OFFSET",
                           (2 * CONSUMERS * choice->queries + 4 * choice->buffers) * BARRIER_BYTES,
                           8, "mbarriers");
    return plan->shared_bytes;
}

static void choose(const struct smelt__spec *spec, const struct smelt__arch *arch,
                   struct choice *choice, struct smelt__plan *plan) {
    const int limit = smelt__shared_of_block(arch, 1);
    choice->dqk = (int)smelt__spec_get(spec, "dqk");
    choice->dv = (int)smelt__spec_get(spec, "dv");
    choice->block_keys = (int)smelt__spec_get(spec, "granularity");
    choice->units = smelt__sparse_gqa_units(spec);
    choice->queries = choice->buffers = 1;
    for (int i = 0; i < MOST_BUFFERS; i++) {
        int *const more = i == 2 ? &choice->queries : &choice->buffers;
        ++*more;
        if (add_regions(choice, plan) > limit)
            --*more;
    }
    add_regions(choice, plan);
}

static int plan_sm90(const struct smelt__spec *spec, const struct smelt__arch *arch,
                     struct smelt__plan *plan, struct smelt__message *message) {
    const int units = smelt__sparse_gqa_units(spec);
    struct smelt__misses misses = SMELT__NO_MISSES;
    struct choice choice;
    if (smelt__refuse_without_warpgroups(spec, arch, message))
        return -1;
    if (!smelt__sparse_gqa_can_unite(spec)) {
        smelt__message_set(
            message,
            "%s: variant sm90 needs granularity 64 or 128, dv + granularity at most 256, "
            "and heads of a KV head that are 1, 2, 4 or 8 eights",
            spec->schema->name);
        return -1;
    }
    choose(spec, arch, &choice, plan);
    const int threads = (CONSUMERS + 1) * WARPGROUP;
    if (!smelt__limits_hold(arch, threads, 1, plan->shared_bytes, 0, &misses)) {
        smelt__misses_explain(&misses, spec, arch, "smaller widths", "smaller widths", "", message);
        return -1;
    }
    const struct smelt__plan_row constants[] = {
        {"HAS_SINK", NULL, (int)smelt__spec_get(spec, "sink"),
         "1: a logit per head in the denominator"},
        {"CONSUMERS", NULL, CONSUMERS, "warpgroups that compute"},
        {"RACECHECK", "racecheck", smelt__spec_knob(spec, "racecheck", 0),
         "1: every lane of a warp arrives at barriers"},
        {"Q_BUFFERS", NULL, choice.queries, "tiles of queries in flight"},
        {"STAGES", NULL, choice.buffers, "blocks of keys in flight"},
        {"BLOCK_KEYS", NULL, choice.block_keys, "keys of a block"},
        {"BOX_UNITS", NULL, smelt__sparse_gqa_box_units(units),
         "eights of heads that a box copies"},
        {"CONSUMER_REGISTERS", NULL, CONSUMER_REGISTERS, "of a thread that computes"},
        {"PRODUCER_REGISTERS", NULL, PRODUCER_REGISTERS, "of a thread that copies"},
    };
    struct smelt__sparse_gqa_united_launch *const launch = (void *)plan->launch;
    plan->template_name = "sparse_gqa_united.sm90.cu";
    smelt__sparse_gqa_name(spec, plan);
    smelt__sparse_gqa_block_constants(spec, plan);
    smelt__plan_add_rows(plan, spec, constants, (int)(sizeof constants / sizeof *constants));
    *launch = (struct smelt__sparse_gqa_united_launch){
        .tile_entries = CONSUMERS * (TILE_UNITS / units),
        .part_entries = TILE_UNITS / units,
    };
    smelt__plan_set_threads(plan, threads, 1);
    plan->persistent = 1;
    return 0;
}

const struct smelt__kernel_family smelt__sparse_gqa_united = {
    .schema = {.name = "sparse_gqa_united",
               .summary = "forward pass of sparse_gqa for queries whose lists are united",
               SMELT__KEYS(keys),
               .check = smelt__sparse_gqa_check},
    SMELT__VARIANTS({"sm90", plan_sm90}),
};
