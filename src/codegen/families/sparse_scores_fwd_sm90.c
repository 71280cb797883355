/*
 * The kernel family sparse_scores_fwd: the plan of its variant sm90. The comment at the head of
 * templates/sparse_scores_fwd.sm90.cu and .sm90_heads.cu explains the numbers.
 *
 * The rule. With 41 to 64 heads (padded to 64) the heads are the matrices' rows and 128 keys their
 * columns, else heads are the columns, rounded up to the next 8, above 64 to the next 16. Measured
 * alternately: 64 heads 2.56 ms as rows, 2.81 as columns, 48 2.51 and 2.58, 40 2.47 and 2.43. With up
 * to 32 heads the bottleneck is the bytes of keys in flight or in use, so the ring takes all the
 * shared memory that Q leaves, in tiles of 64 columns. As columns, Q has two buffers up to 64 heads,
 * though with 64 that leaves 10 tiles of 19 (2.80 ms instead of 2.89). Registers: a thread of a math
 * warpgroup holds heads / 2 scores and heads / 4 offsets; as rows, it holds Q (576 columns in 144
 * registers), 64 scores and 2 offsets, and there are registers for two warpgroups of the gather, so
 * that four warps copy: two would be busy for three quarters of the time, and late requests would
 * arrive late.
 */
#include "codegen/families/sparse_scores_fwd.h"
#include "codegen/plan/limits.h"

enum {
    WARPGROUP = 128, /* threads */
    ROW = 128,       /* bytes of a tile's row */
    LANES = 32,      /* slots come in as many */
    TILE_COLUMNS = 64,
    MOST_DQK = 576,
    HEAD_GROUP = 8,   /* wgmma's columns come in eights */
    MANY_HEADS = 64,  /* above, in twice as many */
    MOST_HEADS = 128, /* their Q leaves room for a ring */
    ROWS = 64,        /* heads as rows: wgmma's */
    FEWEST_ROWS = 41, /* heads: below, what pads costs more than rows gain */
    TWO_QUERIES = 64, /* heads up to which Q has two buffers */
    ALIGNMENT = 1024, /* bytes: the swizzle repeats every 1024 */
    THREADS = 3 * WARPGROUP,
    MATH_REGISTERS = 208, /* of two warpgroups */
    GATHER_REGISTERS = 88,
    ROWS_MATH_REGISTERS = 240, /* heads as rows: of one, that has Q */
    ROWS_GATHER_REGISTERS = 128,
    REQUESTS = 2,       /* key blocks that the scan is ahead of the copies */
    WORD_BYTES = 3 * 4, /* of a key block's word, without the bits of its slots */
    MOST_TILES = 32,    /* their parities are the bits of one word */
    SHARED_LIMIT = 227 * 1024,
};

/* The choices, and values that follow from them. */
struct choice {
    int by_heads; /* heads are the rows */
    int heads;    /* rounded up */
    int tiles;    /* of a key block */
    int block_keys;
    int groups; /* of math */
    int copy_warps, query_buffers, ring_tiles;
};

static void add_regions(const struct choice *choice, struct smelt__plan *plan) {
    const int heads = choice->heads, ring = choice->ring_tiles, queries = choice->query_buffers;
    const int ring_blocks = (ring + choice->tiles - 1) / choice->tiles;
    const int word = WORD_BYTES + choice->block_keys / LANES * 4;
    plan->region_count = 0;
    smelt__plan_add_region(plan, "KEYS_OFFSET", ring * choice->block_keys * ROW, ALIGNMENT,
                           "tiles of key blocks");
    smelt__plan_add_region(plan, "QUERY_OFFSET",
                           choice->by_heads ? 0 : queries * heads * choice->tiles * ROW, ALIGNMENT,
                           "Q");
    smelt__plan_add_region(plan, "OFFSETS_OFFSET", queries * heads * 4, 16,
                           "what each head's p is divided by, as a power of two");
    if (choice->by_heads)
        smelt__plan_add_region(plan, "SUMS_OFFSET", 2 * 4 * choice->block_keys * 4, 16,
                               "sums over each warp's heads, of two blocks");
    smelt__plan_add_region(plan, "REQUESTS_OFFSET", REQUESTS * (choice->block_keys * 4 + word), 16,
                           "key blocks that are to be copied");
    smelt__plan_add_region(plan, "WORDS_OFFSET", ring_blocks * word, 16,
                           "description of each block");
    smelt__plan_add_region(
        plan, "BARRIERS_OFFSET",
        ((choice->groups + 1 + choice->by_heads) * ring + 2 * REQUESTS + 2 * queries) * 8, 8,
        "mbarriers");
    smelt__plan_add_region(plan, "RANGE_OFFSET", 2 * 4, 8, "which items the launch takes");
}

static int fits(struct choice *choice, struct smelt__plan *plan, int ring_tiles) {
    choice->ring_tiles = ring_tiles;
    add_regions(choice, plan);
    return plan->shared_bytes <= SHARED_LIMIT;
}

/* The most tiles that fit, or those that are asked for; more than a key block has. */
static int choose_ring(const struct smelt__spec *spec, struct choice *choice,
                       struct smelt__plan *plan, struct smelt__message *message) {
    const int least = choice->tiles + choice->groups - 1;
    int most = MOST_TILES;
    while (most >= least && !fits(choice, plan, most))
        most--;
    const int ring = smelt__spec_knob(spec, "ring_tiles", most);
    if (ring >= least && ring <= most && fits(choice, plan, ring))
        return 0;
    const int shared_kb = SHARED_LIMIT / 1024, width = choice->tiles * TILE_COLUMNS;
    if (most < least)
        smelt__spec_refuse(spec, message,
                           "query_buffers=%d with %d heads (rounded up) and dqk=%d leaves no room "
                           "for a key block in %d KB of shared memory; query_buffers=1 does",
                           choice->query_buffers, choice->heads, width, shared_kb);
    else
        smelt__spec_refuse(
            spec, message,
            "ring_tiles=%d with %d heads (rounded up), dqk=%d and query_buffers=%d is not legal; "
            "legal: %d..%d, more than a key block has and what fits into %d KB of shared memory",
            ring, choice->heads, width, choice->query_buffers, least, most, shared_kb);
    return -1;
}

/* What this variant cannot do at all. */
static int refuse(const struct smelt__spec *spec, struct smelt__message *message) {
    const int dqk = (int)smelt__spec_get(spec, "dqk");
    if (dqk > MOST_DQK || dqk % TILE_COLUMNS != 0)
        return smelt__spec_refuse(
            spec, message,
            "variant=sm90 takes a dqk of multiples of %d up to %d, not %d; variant=mma takes it",
            TILE_COLUMNS, MOST_DQK, dqk);
    const int most =
        smelt__spec_get(spec, "orientation") == SMELT__HEADS_AS_ROWS ? (int)ROWS : (int)MOST_HEADS;
    if (smelt__spec_get(spec, "heads") > most)
        return smelt__spec_refuse(
            spec, message, "variant=sm90%s takes at most %d heads, not %d; %s takes them",
            most == ROWS ? ",orientation=heads" : "", most, (int)smelt__spec_get(spec, "heads"),
            most == ROWS ? "orientation=keys" : "variant=mma");
    return 0;
}

/* What the heads are, how many with those that pad, and the rest that follows from the spec. */
static void choose_heads(const struct smelt__spec *spec, struct choice *choice) {
    const int heads = (int)smelt__spec_get(spec, "heads");
    const int group = heads > MANY_HEADS ? 2 * HEAD_GROUP : HEAD_GROUP;
    choice->by_heads = smelt__spec_knob(spec, "orientation",
                                        heads >= FEWEST_ROWS && heads <= ROWS
                                            ? SMELT__HEADS_AS_ROWS
                                            : SMELT__KEYS_AS_ROWS) == SMELT__HEADS_AS_ROWS;
    choice->heads = choice->by_heads ? ROWS : (heads + group - 1) / group * group;
    choice->tiles = (int)smelt__spec_get(spec, "dqk") / TILE_COLUMNS;
    choice->block_keys = choice->by_heads ? 2 * ROWS : ROWS;
    choice->groups = choice->by_heads ? 1 : 2;
    choice->copy_warps = choice->by_heads ? 4 : 2;
    choice->query_buffers = smelt__spec_knob(spec, "query_buffers", heads <= TWO_QUERIES ? 2 : 1);
}

static void add_constants(const struct smelt__spec *spec, const struct choice *choice,
                          struct smelt__plan *plan) {
    SMELT__PLAN_ADD(
        plan, spec,
        {"RING_TILES", "ring_tiles", choice->ring_tiles,
         "tiles of 64 columns of a key block in flight"},
        {"QUERY_BUFFERS", "query_buffers", choice->query_buffers,
         "queries whose Q is in shared memory at once"},
        {"RACECHECK", "racecheck", smelt__spec_knob(spec, "racecheck", 0),
         "1: every lane of a warp arrives at barriers"},
        {"STAGES", NULL, choice->ring_tiles / choice->tiles, "whole key blocks in the ring"},
        {"QUERY_IN_RING", NULL, choice->by_heads,
         "1: heads are the rows; Q goes by way of the ring into registers"},
        {"MATH_GROUPS", NULL, choice->groups, "warpgroups that compute"},
        {"BLOCK_KEYS", NULL, choice->block_keys, "slots of a key block"},
        {"BLOCK_HEADS", NULL, choice->heads, "heads, rounded up to a multiple of 8"},
        {"REQUESTS", NULL, REQUESTS, "key blocks by which the scan is ahead"},
        {"COPY_WARPS", NULL, choice->copy_warps, "warps of the gather that copy"},
        {"MATH_REGISTERS", NULL, choice->by_heads ? ROWS_MATH_REGISTERS : MATH_REGISTERS,
         "registers of a thread that computes products and sums"},
        {"GATHER_REGISTERS", NULL, choice->by_heads ? ROWS_GATHER_REGISTERS : GATHER_REGISTERS,
         "registers of a thread that gathers"},
        {"BLOCKS_PER_MULTIPROCESSOR", NULL, 1, "thread blocks resident at once"},
        {"THREADS", NULL, THREADS, "threads of a thread block"});
}

int smelt__sparse_scores_fwd_plan_sm90(const struct smelt__spec *spec,
                                       const struct smelt__arch *arch, struct smelt__plan *plan,
                                       struct smelt__message *message) {
    struct choice choice = {0};
    if (refuse(spec, message))
        return -1;
    choose_heads(spec, &choice);
    if (choose_ring(spec, &choice, plan, message))
        return -1;
    smelt__plan_set_template(plan, choice.by_heads ? "sm90_heads" : "sm90");
    smelt__sparse_scores_fwd_name(spec, plan);
    add_constants(spec, &choice, plan);
    plan->threads = THREADS;
    plan->item = "query";
    plan->blocks_per_multiprocessor = 1;
    plan->max_registers = smelt__registers_of_thread(arch, plan->threads, 1);
    plan->persistent = 1;
    return 0;
}
