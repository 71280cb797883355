/*
 * The kernel family indexer_scores_fwd: the plan of its variant sm90. The comment at the head of
 * templates/indexer_scores_fwd.sm90.cu explains the numbers.
 *
 * The rule. The gather is the bottleneck, so the rings take the shared memory that two queries leave.
 * Four warpgroups of math, so that the tensor cores always have a block's products; above 64 heads
 * registers suffice for three. Three with blocks of 128 slots are as fast as four with 64 (within
 * 1 % at 32 and 64 heads). Of e4m3, whose products take half the time, blocks have 128 slots: 1.32
 * times as fast with 64 heads, since a block's other costs weigh more. With block_max=128 blocks have
 * 128 slots, too, because one warpgroup computes all slots that share a logit. Shared memory then has
 * room for three warpgroups if rows have 256 bytes, and registers above 64 heads for one less.
 */
#include "codegen/families/indexer_keys.h"
#include "codegen/families/indexer_scores_fwd.h"
#include "codegen/plan/limits.h"

enum {
    WARPGROUP = 128,    /* threads */
    QUERIES = 2,        /* in shared memory */
    PART_KEYS = 64,     /* wgmma's rows */
    WARP_SLOTS = 16,    /* of these, computed by one warp */
    MOST_COLUMNS = 128, /* of a product: heads, each group's rounded up to a multiple of 8 */
    ROW = 128,          /* bytes of a tile's row */
    ALIGNMENT = 1024,   /* bytes: the swizzle repeats every 1024 */
    WORD = 16,          /* bytes: what a block is, for each of its parts */
    MOST_GROUPS = 4,
    MANY_HEADS = 64, /* most that four groups have registers for */
    LEAST_STAGES = 2,
    MOST_STAGES = 8,
    SHARED_LIMIT = 227 * 1024,
};

struct choice {
    int fp8, block_heads, tiles, groups, block_keys, stages;
    int block_max, head_groups;
};

static void add_regions(const struct choice *choice, struct smelt__plan *plan) {
    const int blocks = choice->groups * choice->stages, heads = choice->block_heads;
    plan->region_count = 0;
    smelt__plan_add_region(plan, "KEYS_OFFSET", blocks * choice->tiles * choice->block_keys * ROW,
                           ALIGNMENT, "rings of blocks of keys");
    smelt__plan_add_region(plan, "QUERY_OFFSET", QUERIES * heads * choice->tiles * ROW, ALIGNMENT,
                           "heads of two queries");
    smelt__plan_add_region(plan, "WEIGHTS_OFFSET", QUERIES * heads * 4, 16,
                           "weights of their heads, fp32");
    smelt__plan_add_region(plan, "WORDS_OFFSET", blocks * WORD * (choice->block_keys / PART_KEYS),
                           16, "description of each block");
    if (choice->fp8)
        smelt__plan_add_region(plan, "ROWS_OFFSET", blocks * choice->block_keys * 4, 16,
                               "row numbers of each block's slots");
    if (choice->block_max > WARP_SLOTS)
        smelt__plan_add_region(plan, "LARGEST_OFFSET",
                               choice->groups * choice->head_groups *
                                   (choice->block_keys / WARP_SLOTS) * 4,
                               16, "the largest logits of warps' slots");
    smelt__plan_add_region(plan, "BARRIERS_OFFSET", 2 * (blocks + QUERIES) * 8, 8, "mbarriers");
}

/* As many stages as fit, or those that the knob requests, if they do. */
static int choose_stages(const struct smelt__spec *spec, struct choice *choice,
                         struct smelt__plan *plan, struct smelt__message *message) {
    const int knob = smelt__spec_knob(spec, "stages", 0);
    for (choice->stages = MOST_STAGES; choice->stages; choice->stages--) {
        add_regions(choice, plan);
        if (plan->shared_bytes <= SHARED_LIMIT)
            break;
    }
    if (choice->stages < LEAST_STAGES)
        return smelt__spec_refuse(spec, message,
                                  "warpgroups=%d and block_keys=%d with %d heads (rounded up) need "
                                  "more than the %d KB of shared memory; use fewer of either",
                                  choice->groups, choice->block_keys, choice->block_heads,
                                  SHARED_LIMIT / 1024);
    if (knob > choice->stages)
        return smelt__spec_refuse(spec, message,
                                  "stages=%d with %d heads (rounded up) and warpgroups=%d needs "
                                  "more than the %d KB of shared memory; legal: %d..%d",
                                  knob, choice->block_heads, choice->groups, SHARED_LIMIT / 1024,
                                  LEAST_STAGES, choice->stages);
    if (knob) {
        choice->stages = knob;
        add_regions(choice, plan);
    }
    return 0;
}

/* Registers of a thread, by groups: what a launch's 504, 512 and 480 of a thread in each warpgroup
 * leave. */
static const struct {
    int math, gather;
} registers[MOST_GROUPS + 1] = {[2] = {216, 72}, [3] = {144, 72}, [4] = {104, 56}};

static int refuse_heads(const struct smelt__spec *spec, const struct choice *choice,
                        struct smelt__message *message) {
    if (choice->block_heads <= MOST_COLUMNS)
        return 0;
    return smelt__spec_refuse(spec, message,
                              "groups=%d of heads, each rounded up to a multiple of 8, make %d "
                              "columns of a product; legal: at most %d, with fewer groups",
                              (int)smelt__spec_get(spec, "groups"), choice->block_heads,
                              MOST_COLUMNS);
}

static int refuse_groups(const struct smelt__spec *spec, const struct choice *choice,
                         struct smelt__message *message) {
    if (choice->groups < MOST_GROUPS || choice->block_heads <= MANY_HEADS)
        return 0;
    return smelt__spec_refuse(spec, message,
                              "warpgroups=%d has registers for %d heads at most; legal: 2, 3",
                              choice->groups, MANY_HEADS);
}

static int refuse_blocks(const struct smelt__spec *spec, const struct choice *choice,
                         struct smelt__message *message) {
    if (choice->block_max <= choice->block_keys)
        return 0;
    return smelt__spec_refuse(spec, message, "block_keys=%d is below block_max=%d; legal: %d",
                              choice->block_keys, choice->block_max, choice->block_max);
}

static void add_constants(const struct choice *choice, const struct smelt__spec *spec,
                          struct smelt__plan *plan) {
    SMELT__PLAN_ADD(plan, spec,
                    {"WARPGROUPS", "warpgroups", choice->groups, "warpgroups that compute"},
                    {"STAGES", "stages", choice->stages, "blocks of keys in flight in each ring"},
                    {"RACECHECK", "racecheck", smelt__spec_knob(spec, "racecheck", 0),
                     "1: every lane of a warp arrives at barriers"},
                    {"BLOCK_KEYS", "block_keys", choice->block_keys, "slots of a block"},
                    {"ROW_TILES", NULL, choice->tiles, "tiles of 128 bytes of a row"},
                    {"MATH_REGISTERS", NULL, registers[choice->groups].math,
                     "registers of a thread that computes"},
                    {"GATHER_REGISTERS", NULL, registers[choice->groups].gather,
                     "registers of a thread that gathers"});
    if (!choice->fp8)
        smelt__plan_add(plan, "ROWS_OFFSET", 0, SMELT__DERIVED, "none: keys have no scales");
    if (choice->block_max <= WARP_SLOTS)
        smelt__plan_add(plan, "LARGEST_OFFSET", 0, SMELT__DERIVED,
                        "none: a warp has all slots of a block of block_max");
}

int smelt__indexer_scores_fwd_plan_sm90(const struct smelt__spec *spec,
                                        const struct smelt__arch *arch, struct smelt__plan *plan,
                                        struct smelt__message *message) {
    const int fp8 = smelt__spec_get(spec, "dtype") == SMELT__INDEXER_FP8;
    const int row_bytes = (int)smelt__spec_get(spec, "dim") * (fp8 ? 1 : 2);
    struct choice choice = {.tiles = (row_bytes + ROW - 1) / ROW,
                            .fp8 = fp8,
                            .block_max = (int)smelt__spec_get(spec, "block_max"),
                            .head_groups = (int)smelt__spec_get(spec, "groups")};
    (void)arch;
    choice.block_heads = smelt__indexer_scores_fwd_name(spec, plan);
    const int many = choice.block_heads > MANY_HEADS, wide = choice.block_max > PART_KEYS;
    choice.groups = smelt__spec_knob(
        spec, "warpgroups", MOST_GROUPS - (many || (wide && choice.tiles > 1)) - (many && wide));
    choice.block_keys =
        smelt__spec_knob(spec, "block_keys", (fp8 && !many) || wide ? 2 * PART_KEYS : PART_KEYS);
    if (refuse_heads(spec, &choice, message) || refuse_groups(spec, &choice, message) ||
        refuse_blocks(spec, &choice, message) || choose_stages(spec, &choice, plan, message))
        return -1;
    add_constants(&choice, spec, plan);
    smelt__plan_set_threads(plan, (choice.groups + 1) * WARPGROUP, 1);
    plan->item = "query";
    plan->persistent = 1;
    return 0;
}
