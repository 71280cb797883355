/*
 * The plans of the kernels for few heads, with keys as the matrices' rows: of variant sm90 of
 * sparse_attn_fwd, and of sparse_gqa's kernels with granularity 1, 4 or 16. The comments at the heads of
 * templates/sparse_attn_fwd.sm90_few.cu and sparse_gqa_fwd.sm90_few.cu explain the numbers.
 *
 * The rule. The bottleneck is the bytes of keys in flight or in use, so the ring takes all the shared
 * memory that the Q of two queries leaves, in tiles of 64 keys by 64 columns: 25 of them with 8 heads
 * and dqk 576, 23 with 16, 18 with 32; a key block has 9 (measured, topk 2048: with 18 tiles 8 heads
 * take 1.29 ms instead of 1.19, 16 heads 1.36 instead of 1.21). A block's tiles are copied and
 * released two at a time (by fours 32 heads are 5 % slower), up to 16 heads by fours (2 % faster at
 * topk 512, the same at 2048). stages=n makes the ring n whole blocks. Heads are rounded up to the
 * next 8. Registers: a math warpgroup holds a whole O^T, 8 tiles of heads / 2 values a thread, 128
 * for 32 heads, and gets 208; the gather gets 88.
 *
 * sparse_gqa has the same rule, with more whole blocks in the ring where widths are small, and parts
 * of two tiles. An item has a KV head's heads; more than 32 of them leave the gather
 * LEAST_GATHER registers. In sparse_gqa_bwd_keys keys and heads are exchanged: an item's "heads" are a
 * block's keys; parts of four tiles are 1 % faster than of two there.
 */
#include "codegen/families/sparse_attn_fwd.h"

#include <stdio.h>
#include <string.h>

#include "codegen/families/sparse_gqa.h"
#include "codegen/plan/limits.h"

enum {
    WARPGROUP = 128, /* threads */
    WARPGROUPS = 3,  /* two of math, gather */
    QUERIES = 2,     /* under way at once */
    BLOCK_KEYS = 64, /* wgmma's rows */
    ROW = 128,       /* bytes of a tile's row */
    TILE = BLOCK_KEYS * ROW,
    TILE_COLUMNS = 64,
    HEAD_GROUP = 8,      /* wgmma's columns come in eights */
    HEAD_STEP = 16,      /* its depth in sixteens: the heads of dk and dv */
    VALUE_WIDTH = 512,   /* columns, of sparse_attn */
    ALIGNMENT = 1024,    /* bytes: the swizzle repeats every 1024 */
    ALL_REGISTERS = 504, /* of three threads, one in each warpgroup */
    REGISTER_UNIT = 8,   /* setmaxnreg's */
    GATHER_REGISTERS = 88,
    LEAST_GATHER = 64,  /* measured: with fewer, 16 heads spill */
    MOST_GATHER = 88,   /* measured: with more, 32 heads spill */
    RING_ENTRIES = 256, /* of a query: two blocks asked for, one held back, a scan's worth */
    STATISTICS = 10,    /* values of a head that warps tell each other */
    REQUEST = 8,        /* bytes, beside an item and its KV tensor */
    WORD = 4,           /* beside one */
    QUERY_ITEM = 4,     /* bytes of an item: a query */
    QUERY_TENSOR = 4,   /* its batch */
    HEADS_ITEM = 12,    /* a query, a KV head and the query's entry */
    HEADS_TENSOR = 8,   /* the batch and the KV head */
    BLOCK_ITEM = 16,    /* a block of keys: its number, table, first row and reach */
    BLOCK_TENSOR = 4,   /* the table: batch and KV head */
    REQUESTS = 2,       /* key blocks that the scan is ahead of the copies */
    LEAST_STAGES = 2,
    MOST_STAGES = 4,
    MOST_BLOCKS = 16,       /* of sparse_gqa: a bit each in a thread's parities */
    WIDE_HEADS = 32,        /* with more: all registers that the gather spares */
    MOST_OUTPUT = 56 * 256, /* heads times dv of an item: with more the assembler spills */
    MOST_QUERIES = 4,       /* of an item: a bit each above a row's number */
    MOST_ITEM_HEADS = 64,
    MOST_UNITED = 48 * 256, /* as MOST_OUTPUT, with several queries: masks need registers, too */
    PART_TILES = 2,
    PART_TILES_16_HEADS = 4,
    FEW_TILES = 6, /* of sparse_gqa_bwd_keys: more of them are filled by fours */
    SHARED_LIMIT = 227 * 1024,
};

/* The choices, and values that follow from them. */
struct choice {
    int heads;                    /* of an item, rounded up */
    int head_blocks;              /* items of a query */
    int item_bytes, tensor_bytes; /* as the roles pass them on */
    int query_tiles;              /* of q */
    int tiles;                    /* of a key block */
    int leading_tiles;            /* of them no values */
    int leading_parts;            /* in which these are filled; 0: with the first values */
    int statistics;               /* 1: they have a region of their own */
    int numbers;                  /* 1: so do the numbers of a block's rows */
    int weights;                  /* tiles of P's kind */
    int most_stages;
    int ring_tiles, part_tiles;
    int math_registers, gather_registers;
    int queries; /* of an item; 0: it is not of queries, or of sparse_attn */
};

/* Key blocks of which the ring holds at least a part. */
static int ring_blocks(const struct choice *choice) {
    return (choice->ring_tiles + choice->tiles - 1) / choice->tiles;
}

static int parts_of(int tiles, const struct choice *choice) {
    return (tiles + choice->part_tiles - 1) / choice->part_tiles;
}

static void add_regions(const struct choice *choice, struct smelt__plan *plan) {
    const int heads = choice->heads;
    const int parts = parts_of(choice->tiles - choice->leading_tiles, choice);
    const int full_parts = choice->leading_parts + parts;
    plan->region_count = 0;
    smelt__plan_add_region(plan, "KEYS_OFFSET", choice->ring_tiles * TILE, ALIGNMENT,
                           "tiles of key blocks; a query's last block then its output");
    smelt__plan_add_region(plan, "QUERY_OFFSET", QUERIES * heads * choice->query_tiles * ROW,
                           ALIGNMENT, "Q");
    smelt__plan_add_region(plan, "P_OFFSET", choice->weights * QUERIES * heads * ROW, ALIGNMENT,
                           "probabilities");
    smelt__plan_add_region(
        plan, "STATISTICS_OFFSET", choice->statistics ? QUERIES * STATISTICS * heads * 4 : 0, 16,
        "maxima and sums that warps exchange where no rope tile has room for them, fp32");
    smelt__plan_add_region(plan, "RING_OFFSET", QUERIES * RING_ENTRIES * 4, 16,
                           "KV row numbers of the key blocks to come");
    smelt__plan_add_region(
        plan, "BARRIERS_OFFSET",
        (ring_blocks(choice) * (QUERIES * full_parts + parts + 1) + QUERIES + 2 * REQUESTS) * 8, 8,
        "mbarriers");
    smelt__plan_add_region(plan, "REQUESTS_OFFSET",
                           REQUESTS * (REQUEST + choice->item_bytes + choice->tensor_bytes), 8,
                           "key blocks that are to be copied");
    smelt__plan_add_region(plan, "WORDS_OFFSET", ring_blocks(choice) * (WORD + choice->item_bytes),
                           8, "description of each block");
    if (choice->numbers)
        smelt__plan_add_region(plan, "NUMBERS_OFFSET", ring_blocks(choice) * BLOCK_KEYS * 4, 16,
                               "numbers of key blocks' rows");
    smelt__plan_add_region(plan, "RANGE_OFFSET", 2 * 4, 8, "which items the launch takes");
}

/* The name of a knob; NULL if the family lacks it: then the constant is derived. */
static const char *knob(const struct smelt__spec *spec, const char *name) {
    return smelt__spec_key(spec->schema, name) >= 0 ? name : NULL;
}

/* The constants of sparse_attn's and sparse_gqa's kernels. */
static void add_constants(const struct smelt__spec *spec, const struct choice *choice,
                          struct smelt__plan *plan) {
    const struct smelt__plan_row constants[] = {
        {"BLOCK_KEYS", knob(spec, "block_keys"), BLOCK_KEYS, "KV rows of a key block"},
        {"STAGES", knob(spec, "stages"), choice->ring_tiles / choice->tiles,
         "whole key blocks in the ring"},
        {"PART_TILES", knob(spec, "part_tiles"), choice->part_tiles,
         "tiles of a key block that are filled and freed together"},
        {"GATHER_REGISTERS", knob(spec, "gather_registers"), choice->gather_registers,
         "registers of a thread that gathers"},
        {"COMPACT", knob(spec, "compact"), 1, "1: masked slots are dropped before the gather"},
        {"BLOCKS_PER_MULTIPROCESSOR", knob(spec, "blocks"), 1, "thread blocks resident at once"},
        {"RACECHECK", knob(spec, "racecheck"), smelt__spec_knob(spec, "racecheck", 0),
         "1: every lane of a warp arrives at barriers"},
        {"THREADS", NULL, WARPGROUPS * WARPGROUP, "threads of a thread block"},
        {"MATH_REGISTERS", NULL, choice->math_registers,
         "registers of a thread that computes products and softmax"},
        {"BLOCK_HEADS", NULL, choice->heads, "heads, rounded up to a multiple of 8"},
        {"HEAD_BLOCKS", NULL, choice->head_blocks, "items of a query"},
        {"RING_TILES", NULL, choice->ring_tiles, "tiles of 64 keys by 64 columns in flight"},
        {"QUERIES_AHEAD", NULL, 32, "entries of a query list that a warp holds"},
        {"RING_ENTRIES", NULL, RING_ENTRIES, "row numbers the ring holds"},
    };
    smelt__plan_add_rows(plan, spec, constants, (int)(sizeof constants / sizeof *constants));
}

/* What the gather leaves, the warpgroups of math share. */
static void divide_registers(int gather, struct choice *choice) {
    choice->gather_registers = gather;
    choice->math_registers = (ALL_REGISTERS - gather) / 2 / REGISTER_UNIT * REGISTER_UNIT;
}

/* The knobs that no other depends on; -1 with a message where one is not legal. */
static int choose_knobs(const struct smelt__spec *spec, struct choice *choice,
                        struct smelt__message *message) {
    const int gather = smelt__spec_knob(spec, "gather_registers", GATHER_REGISTERS);
    if (gather < LEAST_GATHER || gather > MOST_GATHER || gather % REGISTER_UNIT != 0)
        return smelt__spec_refuse(spec, message,
                                  "gather_registers=%d is not legal with variant=sm90 and keys as "
                                  "rows; legal: multiples of 8 in %d..%d",
                                  gather, LEAST_GATHER, MOST_GATHER);
    choice->part_tiles = smelt__spec_knob(spec, "part_tiles",
                                          choice->heads <= 16 ? PART_TILES_16_HEADS : PART_TILES);
    divide_registers(gather, choice);
    return 0;
}

/* The most tiles that fit, of at most most_stages blocks. */
static int tiles_that_fit(struct choice *choice, struct smelt__plan *plan) {
    for (choice->ring_tiles = choice->most_stages * choice->tiles;; choice->ring_tiles--) {
        add_regions(choice, plan);
        if (plan->shared_bytes <= SHARED_LIMIT)
            return choice->ring_tiles;
    }
}

/* As many tiles as fit, or those of the blocks that are asked for, if they do. */
static int choose_ring(const struct smelt__spec *spec, struct choice *choice,
                       struct smelt__plan *plan, struct smelt__message *message) {
    const int most = tiles_that_fit(choice, plan), most_stages = most / choice->tiles;
    const int stages = smelt__spec_knob(spec, "stages", 0);
    if (stages > most_stages)
        return smelt__spec_refuse(spec, message,
                                  "stages=%d with %d heads (rounded up) and dqk=%d needs more than "
                                  "the %d KB of shared memory; legal: %d..%d, or auto, the %d "
                                  "tiles of 64 columns that fit, %d of them a stage",
                                  stages, choice->heads, choice->tiles * TILE_COLUMNS,
                                  SHARED_LIMIT / 1024, LEAST_STAGES, most_stages, most,
                                  choice->tiles);
    choice->ring_tiles = stages ? stages * choice->tiles : most;
    return 0;
}

int smelt__sparse_attn_fwd_plan_keys(const struct smelt__spec *spec, struct smelt__plan *plan,
                                     struct smelt__message *message) {
    struct choice choice = {0};
    choice.heads = ((int)smelt__spec_get(spec, "heads") + HEAD_GROUP - 1) / HEAD_GROUP * HEAD_GROUP;
    choice.head_blocks = 1;
    choice.item_bytes = QUERY_ITEM;
    choice.tensor_bytes = QUERY_TENSOR;
    choice.query_tiles = choice.tiles = (int)smelt__spec_get(spec, "dqk") / TILE_COLUMNS;
    choice.leading_tiles = choice.tiles - VALUE_WIDTH / TILE_COLUMNS;
    choice.statistics = choice.leading_tiles == 0;
    choice.most_stages = MOST_STAGES;
    choice.weights = 1;
    if (choose_knobs(spec, &choice, message) || choose_ring(spec, &choice, plan, message))
        return -1;
    plan->template_name = "sparse_attn_fwd.sm90_few.cu";
    add_constants(spec, &choice, plan);
    add_regions(&choice, plan);
    plan->threads = WARPGROUPS * WARPGROUP;
    plan->blocks_per_item = 1;
    return 0;
}

/* ---- sparse_gqa ------------------------------------------------------------------------------ */

static int tiles_of(int columns) {
    return (columns + TILE_COLUMNS - 1) / TILE_COLUMNS;
}

/* What all have in common; `more`: tiles of an item's heads beside q's; `part_tiles`: the rule's. */
static void choose_gqa(const struct smelt__spec *spec, int leading, int others, int more,
                       int part_tiles, struct choice *choice, struct smelt__plan *plan) {
    choice->part_tiles = smelt__spec_knob(spec, "part_tiles", part_tiles);
    choice->most_stages = MOST_BLOCKS;
    choice->leading_tiles = leading;
    choice->tiles = leading + others;
    choice->query_tiles = tiles_of((int)smelt__spec_get(spec, "dqk")) + more;
    choice->leading_parts = parts_of(leading, choice);
    choice->ring_tiles = tiles_that_fit(choice, plan);
    divide_registers(choice->heads > WIDE_HEADS && choice->queries <= 1 ? LEAST_GATHER
                                                                        : GATHER_REGISTERS,
                     choice);
}

static void finish_gqa(const struct smelt__spec *spec, const struct smelt__arch *arch,
                       const struct choice *choice, struct smelt__plan *plan) {
    struct smelt__sparse_gqa_launch *const launch = (void *)plan->launch;
    smelt__sparse_gqa_name(spec, plan);
    add_constants(spec, choice, plan);
    const struct smelt__plan_row item_queries = {"ITEM_QUERIES", knob(spec, "item_queries"),
                                                 choice->queries,
                                                 "queries of an item, whose lists are united"};
    if (choice->queries)
        smelt__plan_add_rows(plan, spec, &item_queries, 1);
    launch->queries = choice->queries;
    add_regions(choice, plan);
    plan->threads = WARPGROUPS * WARPGROUP;
    plan->blocks_per_item = choice->head_blocks;
    plan->item = "query";
    plan->blocks_per_multiprocessor = 1;
    plan->max_registers =
        arch->registers_per_multiprocessor / plan->threads / REGISTER_UNIT * REGISTER_UNIT;
    plan->persistent = 1;
}

static int kv_heads(const struct smelt__spec *spec) {
    return (int)smelt__spec_get(spec, "kv_heads");
}

/* The heads of an item of `queries` queries, rounded up to a multiple of `step`. */
static int item_heads(const struct smelt__spec *spec, int queries, int step) {
    const int heads = (int)smelt__spec_get(spec, "heads") / kv_heads(spec);
    return (queries * heads + step - 1) / step * step;
}

/* The most queries of an item whose lists may be united: as many as have at most `most_heads` heads. */
static int most_queries(const struct smelt__spec *spec, int step, int most_heads) {
    int queries = smelt__spec_get(spec, "unite") ? MOST_QUERIES : 1;
    while (queries > 1 && item_heads(spec, queries, step) > most_heads)
        queries /= 2;
    return queries;
}

int smelt__sparse_gqa_fwd_plan_few(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                   struct smelt__plan *plan, struct smelt__message *message) {
    const int most_heads = MOST_UNITED / (int)smelt__spec_get(spec, "dv");
    const int most =
        most_queries(spec, HEAD_GROUP, most_heads < MOST_ITEM_HEADS ? most_heads : MOST_ITEM_HEADS);
    const int queries = smelt__spec_knob(spec, "item_queries", most);
    struct choice choice = {.heads = item_heads(spec, queries, HEAD_GROUP),
                            .head_blocks = kv_heads(spec),
                            .item_bytes = HEADS_ITEM,
                            .tensor_bytes = HEADS_TENSOR,
                            .statistics = 1,
                            .numbers = queries > 1,
                            .weights = 1,
                            .queries = queries};
    if (queries > most)
        return smelt__spec_refuse(spec, message,
                                  "item_queries=%d is too many; legal: at most %d (with unite=1 "
                                  "those that have 64 heads of a KV head, 48 with dv=256; else 1)",
                                  queries, most);
    if (choice.heads * smelt__spec_get(spec, "dv") > MOST_OUTPUT)
        return smelt__spec_refuse(spec, message,
                                  "variant sm90 with granularity 1, 4 or 16 needs at most 56 heads "
                                  "of a KV head with dv=256");
    choose_gqa(spec, tiles_of((int)smelt__spec_get(spec, "dqk")),
               tiles_of((int)smelt__spec_get(spec, "dv")), 0, PART_TILES, &choice, plan);
    plan->template_name = "sparse_gqa_fwd.sm90_few.cu";
    finish_gqa(spec, arch, &choice, plan);
    smelt__plan_add(plan, "HAS_SINK", (int)smelt__spec_get(spec, "sink"), SMELT__DERIVED,
                    "1: a logit per head in the denominator");
    return 0;
}

int smelt__sparse_gqa_bwd_plan_sm90(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                    struct smelt__plan *plan, struct smelt__message *message) {
    const int values = tiles_of((int)smelt__spec_get(spec, "dv"));
    const int64_t sums = smelt__spec_get(spec, "sums");
    struct smelt__sparse_gqa_launch *const launch = (void *)plan->launch;
    struct choice choice = {.heads = item_heads(spec, 1, HEAD_STEP),
                            .head_blocks = kv_heads(spec),
                            .item_bytes = HEADS_ITEM,
                            .tensor_bytes = HEADS_TENSOR,
                            .numbers = 1,
                            .weights = 1,
                            .queries = 1};
    if (smelt__refuse_without_warpgroups(spec, arch, message))
        return -1;
    if (choice.heads > WIDE_HEADS ||
        smelt__spec_get(spec, "granularity") >= SMELT__SPARSE_GQA_BLOCK)
        return smelt__spec_refuse(
            spec, message,
            "variant sm90 needs granularity 1, 4 or 16 and at most %d heads of a KV head",
            WIDE_HEADS);
    choose_gqa(spec, values, tiles_of((int)smelt__spec_get(spec, "dqk")), values, PART_TILES,
               &choice, plan);
    plan->template_name = "sparse_gqa_bwd.sm90.cu";
    finish_gqa(spec, arch, &choice, plan);
    smelt__plan_add(plan, "SUMS", (int)sums, SMELT__FROM_SPEC,
                    "dk and dv: 0 added in any order, 1 only bounds of the sums, 2 exact sums");
    launch->exact = sums == SMELT__GQA_SUMS_EXACT;
    if (sums != SMELT__GQA_SUMS_ANY) {
        char *const name = plan->kernel_name + strlen(plan->kernel_name);
        snprintf(name, sizeof plan->kernel_name - (size_t)(name - plan->kernel_name), "_%s",
                 smelt__spec_choice(spec, "sums"));
    }
    return 0;
}

int smelt__sparse_gqa_bwd_keys_plan_few(const struct smelt__spec *spec,
                                        const struct smelt__arch *arch, struct smelt__plan *plan,
                                        struct smelt__message *message) {
    const int keys = (int)smelt__spec_get(spec, "granularity");
    const int values = tiles_of((int)smelt__spec_get(spec, "dv"));
    const int tiles = tiles_of((int)smelt__spec_get(spec, "dqk")) + values;
    struct choice choice = {.heads = (keys + HEAD_GROUP - 1) / HEAD_GROUP * HEAD_GROUP,
                            .head_blocks = 1,
                            .item_bytes = BLOCK_ITEM,
                            .tensor_bytes = BLOCK_TENSOR,
                            .numbers = 1,
                            .weights = 2};
    (void)message; /* it always has a plan */
    choose_gqa(spec, 0, tiles, values, tiles > FEW_TILES ? PART_TILES_16_HEADS : PART_TILES,
               &choice, plan);
    plan->template_name = "sparse_gqa_bwd_keys.sm90_few.cu";
    finish_gqa(spec, arch, &choice, plan);
    plan->item = NULL; /* no query, of which the call knows how many there are */
    return 0;
}
