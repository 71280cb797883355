/*
 * The kernel family indexer_scores_fwd: the plan of its variant sm90. What the kernel does with
 * these numbers stands at the head of templates/indexer_scores_fwd.sm90.cu.
 *
 * The rule. What binds is the gather, so the ring takes the shared memory that two queries leave.
 */
#include "codegen/families/indexer_scores_fwd.h"
#include "codegen/plan/limits.h"

enum {
    WARPGROUP = 128, /* threads */
    WARPGROUPS = 3,  /* two of math, gather */
    QUERIES = 2,     /* in shared memory */
    BLOCK_KEYS = 64, /* wgmma's rows */
    TILE_COLUMNS = 64,
    ROW = 128,        /* bytes of a tile's row */
    ALIGNMENT = 1024, /* bytes: the swizzle repeats every 1024 */
    GATHER_REGISTERS = 72,
    MATH_REGISTERS = 216,
    WORD = 16, /* bytes: what a block is */
    MOST_STAGES = 16,
    LEAST_STAGES = 4,
    SHARED_LIMIT = 227 * 1024,
};

struct choice {
    int block_heads, tiles, stages;
};

static void add_regions(const struct choice *choice, struct smelt__plan *plan) {
    const int stages = choice->stages, heads = choice->block_heads;
    plan->region_count = 0;
    smelt__plan_add_region(plan, "KEYS_OFFSET", stages * choice->tiles * BLOCK_KEYS * ROW,
                           ALIGNMENT, "a ring of blocks of keys");
    smelt__plan_add_region(plan, "QUERY_OFFSET", QUERIES * heads * choice->tiles * ROW, ALIGNMENT,
                           "heads of two queries");
    smelt__plan_add_region(plan, "WEIGHTS_OFFSET", QUERIES * heads * 4, 16,
                           "weights of their heads, fp32");
    smelt__plan_add_region(plan, "WORDS_OFFSET", stages * WORD, 16, "what each block is");
    smelt__plan_add_region(plan, "BARRIERS_OFFSET", 2 * (stages + QUERIES) * 8, 8, "mbarriers");
}

/* As many stages as fit, an even number, or those that are asked for, if they do. */
static int choose_stages(const struct smelt__spec *spec, struct choice *choice,
                         struct smelt__plan *plan, struct smelt__message *message) {
    const int asked = smelt__spec_knob(spec, "stages", 0);
    for (choice->stages = asked > MOST_STAGES ? asked : MOST_STAGES;; choice->stages -= 2) {
        add_regions(choice, plan);
        if (plan->shared_bytes <= SHARED_LIMIT)
            break;
    }
    if (asked > choice->stages) {
        smelt__message_set(message,
                           "%s: stages=%d with %d heads (in eights) needs more than the %d KB of "
                           "shared memory; legal: %d..%d by twos",
                           spec->schema->name, asked, choice->block_heads, SHARED_LIMIT / 1024,
                           LEAST_STAGES, choice->stages);
        return -1;
    }
    if (asked) {
        choice->stages = asked;
        add_regions(choice, plan);
    }
    return 0;
}

static void add_constants(const struct choice *choice, const struct smelt__spec *spec,
                          struct smelt__plan *plan) {
    const struct {
        const char *name, *knob; /* knob: its key; NULL: derived */
        int value;
        const char *meaning;
    } constants[] = {
        {"STAGES", "stages", choice->stages, "blocks of keys in flight"},
        {"RACECHECK", "racecheck", smelt__spec_knob(spec, "racecheck", 0),
         "1: every lane of a warp arrives at barriers"},
        {"BLOCK_KEYS", NULL, BLOCK_KEYS, "slots of a block"},
        {"ROW_TILES", NULL, choice->tiles, "tiles of 64 columns"},
        {"MATH_REGISTERS", NULL, MATH_REGISTERS, "of a thread that computes"},
        {"GATHER_REGISTERS", NULL, GATHER_REGISTERS, "of a thread that gathers"},
    };
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        smelt__plan_add(plan, constants[i].name, constants[i].value,
                        constants[i].knob ? smelt__plan_origin(spec, constants[i].knob)
                                          : SMELT__DERIVED,
                        constants[i].meaning);
}

int smelt__indexer_scores_fwd_plan_sm90(const struct smelt__spec *spec,
                                        const struct smelt__arch *arch, struct smelt__plan *plan,
                                        struct smelt__message *message) {
    struct choice choice = {.tiles = (int)smelt__spec_get(spec, "dim") / TILE_COLUMNS};
    if (smelt__refuse_without_warpgroups(spec, arch, message))
        return -1;
    choice.block_heads = smelt__indexer_scores_fwd_name(spec, plan);
    if (choose_stages(spec, &choice, plan, message))
        return -1;
    plan->template_name = "indexer_scores_fwd.sm90.cu";
    add_constants(&choice, spec, plan);
    smelt__plan_set_threads(plan, WARPGROUPS * WARPGROUP, 1);
    plan->item = "query";
    plan->blocks_per_item = 1;
    plan->persistent = 1;
    return 0;
}
