/*
 * The kernel family sparse_attn_bwd: the plan of its variant sm90. The comment at the head of
 * templates/sparse_attn_bwd.sm90.cu explains the numbers.
 *
 * The rule. wgmma's products have 64 rows. More than 32 heads are padded to a multiple of 64, and each
 * 64 are an item; fewer are padded to 8, 16 or 32, and 8, 4 or 2 queries share an item. The knob
 * `group` can reduce the number of queries that share an item.
 *
 * Registers. In a block of 384 threads, three threads, one in each warpgroup, share 504 registers. dQ
 * takes 288 of them with 576 columns, S and dP 64, dKV's accumulators and operands 64, and each role
 * needs 24 to 32 more (ptxas puts no accumulator below R24). So there is one way to divide them, and
 * no knob.
 */
#include <inttypes.h>

#include "codegen/families/sparse_attn_bwd.h"
#include "codegen/families/sparse_attn_keys.h"
#include "codegen/plan/limits.h"

enum {
    WARPGROUP = 128, /* threads */
    WARPGROUPS = 3,  /* scores, gather, sums */
    ROWS = 64,       /* of an item: wgmma's */
    KEYS = 64,       /* of a key block */
    VALUE_WIDTH = 512,
    ROPE_WIDTH = 64, /* columns of a key that are not its value's, or none */
    LEAST_GROUPED_HEADS = 8,
    TILE = 64 * 64 * 2,       /* bytes: 64 rows of 64 columns */
    BLOCKS_AHEAD = 4,         /* announced key blocks whose numbers are kept */
    WORD = 16,                /* bytes, of an announced block or a cursor */
    PAIR_BARRIERS = 2,        /* of a pair, and two of each receive buffer */
    RECEIVE_BYTES = TILE / 2, /* bytes, of a chunk of dKV as bf16 */
    RECEIVE_BUFFERS = 2,
    ALIGNMENT = 1024, /* bytes: the swizzle repeats every 1024 */
    SCORES_REGISTERS = 184,
    GATHER_REGISTERS = 224,
    SUMS_REGISTERS = 96,
    /* Of 132 multiprocessors: the sums then take as long as the main kernel on the others; pairs
     * write half as many rows. */
    SUM_MULTIPROCESSORS = 24,
    PAIR_SUM_MULTIPROCESSORS = 12,
};

/* Rows of a query without the knob `group`: its heads, padded. */
static int padded_heads(int heads) {
    int rows = LEAST_GROUPED_HEADS;
    while (rows < heads && rows < ROWS)
        rows *= 2;
    return rows < ROWS ? rows : (heads + ROWS - 1) / ROWS * ROWS;
}

/* Whether the heads are blocks of 64 that two thread blocks can take side by side. */
static int can_pair(const struct smelt__spec *spec) {
    const int blocks = padded_heads((int)smelt__spec_get(spec, "heads")) / ROWS;
    return blocks > 0 && blocks % 2 == 0;
}

static int has_pairs(const struct smelt__spec *spec) {
    return smelt__spec_knob(spec, "pairs", can_pair(spec));
}

/* What this variant cannot do. */
static int refuse(const struct smelt__spec *spec, struct smelt__message *message) {
    const int dqk = (int)smelt__spec_get(spec, "dqk"), dv = (int)smelt__spec_get(spec, "dv");
    const int heads = (int)smelt__spec_get(spec, "heads"),
              group = smelt__spec_knob(spec, "group", 1);
    if (dv != VALUE_WIDTH || (dqk != VALUE_WIDTH && dqk != VALUE_WIDTH + ROPE_WIDTH))
        return smelt__spec_refuse(spec, message,
                                  "variant=sm90 has dqk=576 or 512 with dv=512, not dqk=%d with "
                                  "dv=%d; variant=mma has it",
                                  dqk, dv);
    if (group > 1 && group * heads > ROWS)
        return smelt__spec_refuse(
            spec, message,
            "group=%d of %d heads do not fit into the %d rows of a tile; at most %d of them do",
            group, heads, ROWS, heads > ROWS ? 1 : ROWS / padded_heads(heads));
    if (has_pairs(spec) && !can_pair(spec))
        return smelt__spec_refuse(
            spec, message,
            "pairs=1 needs an even number of blocks of 64 heads, not heads=%d; leave it out",
            heads);
    return 0;
}

/* Not in deterministic mode: slices depend on the grid, and dq's last bits on the slices. */
static int slice_blocks(const struct smelt__spec *spec, const struct smelt__plan *plan) {
    return smelt__spec_get(spec, "deterministic") ? 0 : plan->cluster ? plan->cluster : 1;
}

static int sum_multiprocessors(const struct smelt__spec *spec, const struct smelt__plan *plan) {
    return !smelt__spec_get(spec, "deterministic") ? 0
           : plan->cluster                         ? PAIR_SUM_MULTIPROCESSORS
                                                   : SUM_MULTIPROCESSORS;
}

static void add_constants(const struct smelt__spec *spec, struct smelt__plan *plan) {
    const int heads = (int)smelt__spec_get(spec, "heads");
    const int rows = padded_heads(heads);
    const int group = smelt__spec_knob(spec, "group", rows < ROWS ? ROWS / rows : 1);
    const int query_rows = group > 1 || rows < ROWS ? ROWS / group : rows;
    struct smelt__sparse_attn_bwd_launch *const launch = (void *)plan->launch;
    *launch = (struct smelt__sparse_attn_bwd_launch){
        .group_queries = group,
        .query_rows = query_rows,
        .head_blocks = group * query_rows / ROWS,
        .block_heads = ROWS,
        .tensor_maps = 1,
        .sum_multiprocessors = sum_multiprocessors(spec, plan),
        .slice_blocks = slice_blocks(spec, plan),
    };
    SMELT__PLAN_ADD(
        plan, spec, {"GROUP_QUERIES", "group", launch->group_queries, "queries of an item"},
        {"BLOCK_KEYS", "block_keys", KEYS, "KV rows of a key block"},
        {"RACECHECK", "racecheck", smelt__spec_knob(spec, "racecheck", 0),
         "1: every lane of a warp arrives at barriers"},
        {"STAGES", NULL, 1, "key blocks in shared memory, filled tile by tile"},
        {"QUERY_ROWS", NULL, launch->query_rows, "rows of a query: heads, padded"},
        {"HEAD_BLOCKS", NULL, launch->head_blocks, "items of a group"},
        {"BLOCK_HEADS", NULL, launch->block_heads, "rows of an item"},
        {"PAIR", "pairs", plan->cluster > 0, "1: two items side by side add up their dKV"},
        {"TENSOR_MAPS", NULL, launch->tensor_maps, "1: Q and dO are read through their maps"},
        {"SUM_MULTIPROCESSORS", NULL, launch->sum_multiprocessors,
         "multiprocessors left to the sums of partial rows"},
        {"SLICE_BLOCKS", NULL, launch->slice_blocks, "thread blocks that take a slice of items"},
        {"SCORES_REGISTERS", NULL, SCORES_REGISTERS,
         "registers of a thread that computes S, dP and some of dQ"},
        {"GATHER_REGISTERS", NULL, GATHER_REGISTERS,
         "registers of a thread that gathers and computes most of dQ"},
        {"SUMS_REGISTERS", NULL, SUMS_REGISTERS, "registers of a thread that computes dKV"});
    plan->blocks_per_item = launch->head_blocks;
}

/* Buffers for the rows that the other CTA of a pair sends: regions of their own if the keys are
 * narrow enough, else P's tile. */
static void add_receive_buffers(struct smelt__plan *plan, int tiles) {
    const int own = plan->cluster && tiles == VALUE_WIDTH / 64;
    if (own)
        smelt__plan_add_region(plan, "RECEIVE_OFFSET", RECEIVE_BUFFERS * RECEIVE_BYTES, ALIGNMENT,
                               "sums received from the pair's other CTA");
    else
        smelt__plan_add(plan, "RECEIVE_OFFSET",
                        smelt__plan_constant(plan, "PROBABILITIES_OFFSET", NULL), SMELT__DERIVED,
                        "sums received from the pair's other CTA: P's tile");
    smelt__plan_add(plan, "RECEIVE_BUFFERS", RECEIVE_BUFFERS, SMELT__DERIVED,
                    "chunks received at once");
}

static void add_regions(const struct smelt__spec *spec, struct smelt__plan *plan) {
    const int tiles = (int)smelt__spec_get(spec, "dqk") / 64;
    const int pair = plan->cluster ? PAIR_BARRIERS + 2 * RECEIVE_BUFFERS : 0;
    smelt__plan_add_region(plan, "QUERY_OFFSET", tiles * TILE, ALIGNMENT, "Q");
    smelt__plan_add_region(plan, "GRAD_OUT_OFFSET", VALUE_WIDTH / 64 * TILE, ALIGNMENT, "dO");
    smelt__plan_add_region(plan, "KEYS_OFFSET", tiles * TILE, ALIGNMENT, "a key block");
    smelt__plan_add_region(plan, "PROBABILITIES_OFFSET", TILE, ALIGNMENT, "P, bf16");
    smelt__plan_add_region(plan, "DS_OFFSET", TILE, ALIGNMENT, "dS, bf16");
    add_receive_buffers(plan, tiles);
    smelt__plan_add_region(plan, "KEY_NUMBERS_OFFSET", BLOCKS_AHEAD * KEYS * 4, 16,
                           "key numbers of the announced blocks");
    smelt__plan_add_region(plan, "ADDRESSES_OFFSET", 2 * KEYS * 8, 16,
                           "addresses of the rows of the last two");
    smelt__plan_add_region(plan, "MASKS_OFFSET", BLOCKS_AHEAD * KEYS, 16,
                           "which members have the keys, bits");
    smelt__plan_add_region(plan, "WORDS_OFFSET", BLOCKS_AHEAD * WORD, 16,
                           "description of each announced block");
    smelt__plan_add_region(plan, "CURSORS_OFFSET", 2 * WORD, 16, "which block is announced next");
    smelt__plan_add_region(plan, "SLICES_OFFSET", 3 * WORD, 16, "slices that are taken");
    smelt__plan_add_region(plan, "SPIN_LIMIT_OFFSET", 4, 4,
                           "polls of a wait that keeps CTAs in step");
    smelt__plan_add_region(plan, "STEP_OFFSET", 4, 4, "how CTAs keep in step");
    smelt__plan_add_region(plan, "BARRIERS_OFFSET", (3 * tiles + 4 + pair) * 8, 8, "mbarriers");
}

int smelt__sparse_attn_bwd_plan_sm90(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                     struct smelt__plan *plan, struct smelt__message *message) {
    (void)arch;
    if (refuse(spec, message))
        return -1;
    smelt__sparse_attn_name(spec, plan);
    plan->cluster = has_pairs(spec) ? 2 : 0;
    add_constants(spec, plan);
    add_regions(spec, plan);
    plan->item = "group";
    smelt__plan_set_threads(plan, WARPGROUPS * WARPGROUP, 1);
    plan->persistent = 1;
    return 0;
}
