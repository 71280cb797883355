/*
 * The kernel family indexer_logits_fwd: the plan of its variant sm90. The comment at the head of
 * templates/indexer_logits_fwd.sm90.cu explains the numbers.
 *
 * The rule. A block has about 256 columns, queries times heads. The arithmetic on a product's
 * values takes about as long as an e4m3 product of 128 columns and depth 128, and half as long as a
 * bf16 product: three warpgroups keep both units busy.
 */
#include <limits.h>

#include "codegen/families/indexer_keys.h"
#include "codegen/families/indexer_logits_fwd.h"
#include "codegen/plan/limits.h"

enum {
    WARPGROUP = 128,           /* threads */
    OTHER_MATH_REGISTERS = 24, /* registers of a thread in addition to products, weights and sums */
    KEYS = 64,                 /* of a KV tile */
    SET_QUERIES = 4,
    PAIR = 2,              /* heads of a box */
    BLOCK_COLUMNS = 256,   /* at most, while heads allow */
    MOST_SETS = 8,         /* a batch of 32 queries' windows is looked at together */
    MOST_WEIGHTS = 64,     /* a thread keeps */
    STAGED_ROW = KEYS + 8, /* fp32: writing and reading meet no bank twice */
    FILL_BYTES = 8192,     /* of -inf, one bulk store */
    MOST_STAGES = 15,
    MOST_QUERY_BUFFERS = 3,
    BLOCK_START = 5, /* KV tiles: what a block costs before its first; measured */
    MOST_BLOCK = 16, /* of block_max: keys of a product that one warp has */
};

struct choice {
    int heads, fp8, head_groups, block_max;
    int padded_heads, sets, part_columns;
    struct smelt__indexer_logits_block block;
};

/* Heads that fill eights of columns, and those into parts that wgmma has a width for. */
static int padded_heads(int heads) {
    const int step = heads <= 16 ? 2 : heads <= 32 ? 4 : heads <= 64 ? 8 : 16;
    return (heads + step - 1) / step * step;
}

static void choose_columns(struct choice *choice, int most) {
    choice->padded_heads = padded_heads(choice->heads);
    choice->sets = 1;
    while (choice->sets < MOST_SETS &&
           2 * choice->sets * SET_QUERIES * choice->padded_heads <= BLOCK_COLUMNS)
        choice->sets *= 2;
    const int eights = choice->sets * SET_QUERIES * choice->padded_heads / 8;
    int parts = 1;
    while (eights % parts || eights / parts * 8 > most)
        parts++;
    choice->part_columns = eights / parts * 8;
}

/* Whether logits go through shared memory, to be written as whole lines: where a product yields so
 * many that the size of the writes matters. A warp then writes two queries at a time, so a part
 * must consist of an even number of whole sets. */
static int stages_logits(const struct choice *choice) {
    return choice->fp8 && choice->head_groups == 1 && choice->block_max == 1 &&
           choice->sets == MOST_SETS &&
           choice->part_columns % (2 * SET_QUERIES * choice->padded_heads) == 0;
}

static int staging_bytes(const struct choice *choice) {
    const int part_queries = choice->part_columns / choice->padded_heads;
    return stages_logits(choice) ? choice->block.groups * part_queries * STAGED_ROW * 4 : 0;
}

/* Three buffers of queries if that leaves enough stages, else two if it leaves any. */
static void choose_buffers(const struct smelt__arch *arch,
                           struct smelt__indexer_logits_block *block, struct smelt__plan *plan) {
    const int limit = smelt__shared_of_block(arch, 1);
    block->buffers = MOST_QUERY_BUFFERS;
    block->stages = 3 * block->groups;
    if (smelt__indexer_logits_regions(block, plan) > limit) {
        block->stages = block->groups;
        while (--block->buffers > 1 && smelt__indexer_logits_regions(block, plan) > limit)
            continue;
    }
    smelt__indexer_logits_share(arch, block, MOST_STAGES, plan);
}

static int registers_needed(const struct choice *choice) {
    const int all = choice->sets * choice->padded_heads;
    const int weights = all <= MOST_WEIGHTS ? all : choice->part_columns / 4;
    return choice->part_columns / 2 + weights + OTHER_MATH_REGISTERS;
}

static void add_constants(const struct choice *choice, const struct smelt__spec *spec,
                          struct smelt__plan *plan) {
    struct smelt__indexer_logits_launch *const launch = (void *)plan->launch;
    *launch = (struct smelt__indexer_logits_launch){
        .block_queries = choice->block.queries,
        .block_keys = KEYS,
        .tensor_maps = 1,
        .map_queries = SET_QUERIES,
        .map_heads = PAIR,
        .map_keys = KEYS,
        .map_pairs = choice->heads % PAIR ? 0 : choice->padded_heads / PAIR,
    };
    SMELT__PLAN_ADD(
        plan, spec, {"WARPGROUPS", "warpgroups", choice->block.groups, "warpgroups that compute"},
        {"PART_COLUMNS", "columns", choice->part_columns, "columns of a product"},
        {"RACECHECK", "racecheck", smelt__spec_knob(spec, "racecheck", 0),
         "1: every lane of a warp arrives at barriers"},
        {"STAGES", NULL, choice->block.stages, "KV tiles in flight"},
        {"QUERY_BUFFERS", NULL, choice->block.buffers, "blocks whose queries are in flight"},
        {"PADDED_HEADS", NULL, choice->padded_heads, "columns of a query"},
        {"BLOCK_QUERIES", NULL, launch->block_queries, "queries of a block"},
        {"LANE_QUERIES", NULL, 1, "queries whose windows a lane reads"},
        {"BLOCK_KEYS", NULL, launch->block_keys, "keys of a KV tile"},
        {"BLOCK_START", NULL, BLOCK_START, "cost of a block before its first KV tile, in KV tiles"},
        {"MOST_WEIGHTS", NULL, MOST_WEIGHTS, "weights that a thread keeps"},
        {"SCALES_AHEAD", NULL, choice->sets != 2,
         "1: keys' scales are loaded a KV tile ahead; with 17 to 32 heads that was slower"},
        {"STAGES_LOGITS", NULL, stages_logits(choice),
         "1: logits go to memory by whole lines, through shared memory"},
        {"STAGED_ROW", NULL, STAGED_ROW, "fp32 numbers of a query's row of staged logits"});
}

/* What only mma has. */
static int refuse_scoring(const struct smelt__spec *spec, struct smelt__message *message) {
    const int block_max = (int)smelt__spec_get(spec, "block_max");
    if (block_max <= MOST_BLOCK)
        return 0;
    return smelt__spec_refuse(
        spec, message,
        "variant sm90 has no block_max=%d; legal there: 1, 2, 4, 8, 16; variant=mma has all",
        block_max);
}

int smelt__indexer_logits_fwd_plan_sm90(const struct smelt__spec *spec,
                                        const struct smelt__arch *arch, struct smelt__plan *plan,
                                        struct smelt__message *message) {
    struct smelt__excess excess = SMELT__NO_EXCESS;
    struct choice choice = {
        .heads = (int)smelt__spec_get(spec, "heads"),
        .fp8 = smelt__spec_get(spec, "dtype") == SMELT__INDEXER_FP8,
        .head_groups = (int)smelt__spec_get(spec, "groups"),
        .block_max = (int)smelt__spec_get(spec, "block_max"),
        .block = {.keys = KEYS,
                  .row_bytes = smelt__indexer_row_bytes(spec),
                  .fill_bytes = FILL_BYTES,
                  .groups = smelt__spec_knob(spec, "warpgroups", 3)},
    };
    if (refuse_scoring(spec, message))
        return -1;
    struct smelt__indexer_logits_block *const block = &choice.block;
    choose_columns(&choice, smelt__spec_knob(spec, "columns", 128));
    block->queries = choice.sets * SET_QUERIES;
    block->rows = block->queries * choice.padded_heads;
    block->staging_bytes = staging_bytes(&choice);
    choose_buffers(arch, block, plan);
    const int threads = (block->groups + 1) * WARPGROUP, registers = registers_needed(&choice);
    const int fits = smelt__limits_hold(arch, threads, 1, plan->shared_bytes, 0, &excess);
    if (!fits || registers > block->math_registers) {
        if (fits) {
            excess.registers = registers;
            excess.register_limit = block->math_registers;
        }
        smelt__excess_explain(&excess, spec, arch, "fewer heads", "fewer warpgroups or columns", "",
                              message);
        return -1;
    }
    smelt__indexer_logits_fwd_name(spec, plan);
    add_constants(&choice, spec, plan);
    smelt__indexer_logits_finish(block, spec, plan);
    return 0;
}
