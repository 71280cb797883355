/*
 * The kernel family sparse_scores_fwd: the plan of its variant mma. The comment at the head of
 * templates/sparse_scores_fwd.mma.cu explains the numbers.
 *
 * The rule. As many heads at once as fit, 64 at most, since every part of the heads gathers the keys
 * again; for them the shapes below in order of preference; for each shape the formation of the warps
 * that reads least from shared memory: every warp that needs an operand row reads it once. If that
 * leaves warps without a tile, as where shared memory is short, the warps divide the depth.
 */
#include <limits.h>

#include "codegen/families/sparse_attn_widths.h"
#include "codegen/families/sparse_scores_fwd.h"
#include "codegen/plan/limits.h"

enum {
    TILE = 16,             /* heads of an mma tile, columns of a k-step, keys of two n8 tiles */
    MOST_DEPTHS = 4,       /* warps over the depth */
    MOST_TILES = 4,        /* of heads: more leaves no shared memory for two stages */
    WARP = 32,             /* threads */
    OTHER_REGISTERS = 44,  /* addresses, loop state */
    TILE_ALIGNMENT = 1024, /* bytes; the swizzle repeats every 1024 */
    SMALL_ALIGNMENT = 128,
    SCORE_UNROLL = 8, /* k-steps */
};

/* Preferred shapes of the pipeline, best first. */
static const struct pipeline_shape {
    int block_keys, stages;
} shapes[] = {{64, 3}, {64, 2}, {32, 3}, {32, 2}, {16, 3}, {16, 2}, {128, 2}, {128, 3}};

/* The choices. */
struct choice {
    int dqk, dv; /* of tiles */
    int block_tiles, block_keys, stages, warps, blocks;
    int head_groups, key_groups, depth_groups;
};

/* The ring holds the entries of every block under way, an incomplete one and a scan's worth. */
static int ring_entries(const struct choice *choice) {
    const int least = (choice->stages + 1) * choice->block_keys + choice->warps * WARP;
    int entries = 1;
    while (entries < least)
        entries *= 2;
    return entries;
}

static void add_regions(const struct choice *choice, struct smelt__plan *plan) {
    const int heads = choice->block_tiles * TILE, rows = choice->stages * choice->block_keys;
    plan->region_count = 0;
    smelt__plan_add_region(plan, "QUERY_OFFSET", heads * choice->dqk * 2, TILE_ALIGNMENT,
                           "query tile");
    smelt__plan_add_region(plan, "LATENT_OFFSET", rows * choice->dv * 2, TILE_ALIGNMENT,
                           "key blocks, the first columns");
    smelt__plan_add_region(plan, "ROPE_OFFSET", rows * (choice->dqk - choice->dv) * 2,
                           TILE_ALIGNMENT, "key blocks, the last columns");
    smelt__plan_add_region(plan, "OFFSETS_OFFSET", heads * 4, SMALL_ALIGNMENT,
                           "of the heads: what their p is divided by, as a power of two");
    smelt__plan_add_region(plan, "SUMS_OFFSET", choice->head_groups * choice->block_keys * 4,
                           SMALL_ALIGNMENT, "sums over a warp's heads");
    smelt__plan_add_region(plan, "PARTS_OFFSET",
                           (choice->depth_groups - 1) * heads * choice->block_keys * 4,
                           SMALL_ALIGNMENT, "partial scores");
    smelt__plan_add_region(plan, "SLOTS_OFFSET", 8 + 2 * 4, 16, "where the slots are");
    smelt__plan_add_region(plan, "RING_OFFSET", ring_entries(choice) * 4, SMALL_ALIGNMENT,
                           "KV row numbers of the key blocks to come");
    smelt__plan_add_region(plan, "COUNTS_OFFSET", choice->warps * 4, SMALL_ALIGNMENT,
                           "valid slots that each warp found");
    smelt__plan_add_region(plan, "RANGE_OFFSET", 2 * 4, 8, "which items the launch takes");
}

/* An estimate: scores, two buffers of operands, the heads' offsets. */
static int registers_needed(const struct choice *choice) {
    const int tiles = choice->block_tiles / choice->head_groups;
    const int pairs = choice->block_keys / TILE / choice->key_groups;
    return 8 * tiles * pairs + 2 * 4 * (tiles + pairs) + 2 * tiles + OTHER_REGISTERS;
}

/* Rows of operands that the warps read for one key block. */
static int rows_read(const struct choice *choice) {
    return choice->warps * (choice->block_tiles * TILE / choice->head_groups +
                            choice->block_keys / choice->key_groups);
}

static int formation_legal(const struct choice *choice) {
    return choice->key_groups > 0 &&
           choice->head_groups * choice->key_groups * choice->depth_groups == choice->warps &&
           choice->block_tiles % choice->head_groups == 0 &&
           choice->block_keys / TILE % choice->key_groups == 0 &&
           choice->dv / TILE % choice->depth_groups == 0 &&
           (choice->dqk - choice->dv) / TILE % choice->depth_groups == 0;
}

/* The best formation for a shape, written into *choice, without partial scores if there is one. 0
 * when none fits. */
static int choose_formation(struct choice *choice, const struct smelt__arch *arch,
                            struct smelt__plan *scratch, struct smelt__misses *misses) {
    struct choice best = *choice;
    int found = 0;
    for (int depth = 1; depth <= MOST_DEPTHS && !found; depth *= 2)
        for (int heads = 1; heads <= choice->warps; heads *= 2) {
            struct choice next = *choice;
            next.depth_groups = depth;
            next.head_groups = heads;
            next.key_groups = choice->warps / (heads * depth);
            if (!formation_legal(&next))
                continue;
            add_regions(&next, scratch);
            if (!smelt__limits_hold(arch, next.warps * WARP, next.blocks, scratch->shared_bytes,
                                    registers_needed(&next), misses))
                continue;
            if (!found || rows_read(&next) < rows_read(&best))
                best = next;
            found = 1;
        }
    *choice = best;
    return found;
}

/* Tries the shapes and numbers of warps that the knobs leave. */
static int choose_shape(struct choice *choice, const struct smelt__spec *spec,
                        const struct smelt__arch *arch, struct smelt__plan *scratch,
                        struct smelt__misses *misses) {
    const int block_keys = smelt__spec_knob(spec, "block_keys", 0);
    const int stages = smelt__spec_knob(spec, "stages", 0);
    const int warps = smelt__spec_knob(spec, "warps", 0);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        choice->block_keys = shapes[i].block_keys;
        choice->stages = shapes[i].stages;
        if ((block_keys && block_keys != choice->block_keys) ||
            (stages && stages != choice->stages))
            continue;
        for (choice->warps = 8; choice->warps >= 4; choice->warps /= 2)
            if ((!warps || warps == choice->warps) &&
                choose_formation(choice, arch, scratch, misses))
                return 1;
    }
    return 0;
}

static int choose(struct choice *choice, const struct smelt__spec *spec,
                  const struct smelt__arch *arch, struct smelt__plan *scratch,
                  struct smelt__misses *misses) {
    const int tiles = ((int)smelt__spec_get(spec, "heads") + TILE - 1) / TILE;
    *choice = (struct choice){.dqk = smelt__sparse_attn_columns(spec, "dqk"),
                              .dv = smelt__sparse_attn_columns(spec, "dv")};
    choice->blocks = smelt__spec_knob(spec, "blocks", 1);
    for (int most = MOST_TILES; most >= 1; most--) {
        const int parts = (tiles + most - 1) / most;
        choice->block_tiles = (tiles + parts - 1) / parts;
        if (choose_shape(choice, spec, arch, scratch, misses))
            return 1;
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
    const struct smelt__plan_row constants[] = {
        {"BLOCK_KEYS", "block_keys", choice->block_keys, "slots of a step"},
        {"STAGES", "stages", choice->stages, "key blocks in flight"},
        {"WARPS", "warps", choice->warps, "of a thread block"},
        {"COMPACT", NULL, 0, "slots keep their places"},
        {"TOPK", NULL, INT_MAX, "every valid slot counts"},
        {"BLOCK_HEADS", NULL, choice->block_tiles * TILE, "heads at once"},
        {"RAGGED_HEADS", NULL, 0, "all of a part's tiles are computed"},
        {"ROPE_STAGES", NULL, choice->dqk > choice->dv ? choice->stages : 0,
         "buffers for the last columns"},
        {"SCORE_HEAD_GROUPS", NULL, choice->head_groups, "warps side by side over the heads"},
        {"SCORE_KEY_GROUPS", NULL, choice->key_groups, "over the slots"},
        {"SCORE_DEPTH_GROUPS", NULL, choice->depth_groups, "over the depth: partial sums"},
        {"QUERY_IN_REGISTERS", NULL, 0, "query fragments are loaded anew"},
        {"SCORE_UNROLL", NULL, SCORE_UNROLL, "k-steps unrolled"},
        {"RING_ENTRIES", NULL, ring_entries(choice), "row numbers the ring holds, a power of two"},
    };
    smelt__sparse_attn_add_columns(spec, plan);
    smelt__plan_add_rows(plan, spec, constants, (int)(sizeof constants / sizeof *constants));
}

int smelt__sparse_scores_fwd_plan_mma(const struct smelt__spec *spec,
                                      const struct smelt__arch *arch, struct smelt__plan *plan,
                                      struct smelt__message *message) {
    struct choice choice;
    struct smelt__misses misses = SMELT__NO_MISSES;
    if (!choose(&choice, spec, arch, plan, &misses)) {
        if (smelt__sparse_attn_refuse_widths(spec, arch, has_plan, message))
            return -1;
        smelt__misses_explain(&misses, spec, arch, "fewer block_keys, stages or blocks",
                              "fewer blocks or block_keys or more warps",
                              "every warp needs whole tiles of 16 heads and 16 slots", message);
        return -1;
    }
    plan->template_name = "sparse_scores_fwd.mma.cu";
    smelt__sparse_scores_fwd_name(spec, plan);
    add_constants(&choice, spec, plan);
    add_regions(&choice, plan);
    smelt__plan_set_threads(plan, choice.warps * WARP, choice.blocks);
    plan->item = "query";
    plan->blocks_per_item = 1;
    return 0;
}
