/*
 * The kernel family indexer_logits_fwd: the plan of its variant sm90_heads. The comment at the head of
 * templates/indexer_logits_fwd.sm90_heads.cu explains the numbers.
 *
 * The rule. A KV tile of 128 keys is read from L2 once for a block's 256 rows, queries with their
 * heads: with fewer rows the L2 cache is the bottleneck. Three warpgroups alternate tiles; with rows
 * of 256 bytes each has one stage, whose refill the other two's products hide (two warpgroups with
 * two stages each were 6 % slower).
 */
#include <limits.h>

#include "codegen/families/indexer_keys.h"
#include "codegen/families/indexer_logits_fwd.h"
#include "codegen/plan/limits.h"

enum {
    WARPGROUP = 128,    /* threads */
    WARP = 32,          /* lanes, which look at a batch's windows */
    REGISTER_GRAIN = 8, /* of what a thread has, and of what it may give and take */
    MOST_REGISTERS = 232,
    OTHER_REGISTERS = 56, /* of the producer's warpgroup */
    KEYS = 128,           /* of a KV tile */
    PART_ROWS = 64,       /* of a product */
    BLOCK_ROWS = 256,     /* queries with their heads */
    MOST_HEADS = 64,
    LEAST_BLOCK = 8,   /* keys of a block: a product's columns that one instruction's lanes have */
    SWIZZLE = 128,     /* bytes at most */
    ALIGNMENT = 1024,  /* the swizzle repeats every 1024 bytes */
    FILL_BYTES = 2048, /* of -inf, one bulk store */
    RUN_BYTES = 24,
    RANGE_BYTES = 8,
    BARRIER_BYTES = 8,
    MOST_STAGES = 8,
    MOST_QUERY_BUFFERS = 2,
    BLOCK_START = 2, /* KV tiles: what a block costs before its first */
    COARSE = 256,    /* groups of batches whose costs are kept */
    TOGETHER = 4,    /* batches whose windows are loaded at once */
};

struct choice {
    int heads, row_bytes, block_queries, groups, stages, query_buffers, math_registers;
};

static int add_regions(const struct choice *choice, struct smelt__plan *plan) {
    const int buffers = choice->query_buffers;
    plan->region_count = 0;
    smelt__plan_add_region(plan, "QUERIES_OFFSET", buffers * BLOCK_ROWS * choice->row_bytes,
                           ALIGNMENT, "a block's queries, in each buffer");
    smelt__plan_add_region(plan, "KEYS_OFFSET", choice->stages * KEYS * choice->row_bytes,
                           ALIGNMENT, "KV tiles, in each stage");
    smelt__plan_add_region(plan, "LOWEST_OFFSET", FILL_BYTES, 16, "-inf, to fill with");
    smelt__plan_add_region(plan, "WEIGHTS_OFFSET", buffers * BLOCK_ROWS * 4, 16,
                           "a block's weights, in each buffer");
    smelt__plan_add_region(plan, "WINDOWS_OFFSET", buffers * choice->block_queries * RANGE_BYTES,
                           16, "a block's windows, in each buffer");
    smelt__plan_add_region(plan, "RUNS_OFFSET", buffers * RUN_BYTES, 16,
                           "which KV tiles of the block, in each buffer");
    smelt__plan_add_region(plan, "COSTS_OFFSET", (COARSE + 2 * 34) * 8, 16,
                           "costs of groups of batches, while the run is found");
    smelt__plan_add_region(plan, "BARRIERS_OFFSET", 2 * (choice->stages + buffers) * BARRIER_BYTES,
                           8, "mbarriers");
    return plan->shared_bytes;
}

/* A second buffer of queries if two stages for each warpgroup fit beside it; then as many stages as
 * there is room for, a multiple of the warpgroups, so that each is always the same one's. */
static void choose_buffers(const struct smelt__arch *arch, struct choice *choice,
                           struct smelt__plan *plan) {
    const int limit = smelt__shared_of_block(arch, 1);
    choice->query_buffers = MOST_QUERY_BUFFERS;
    choice->stages = 2 * choice->groups;
    while (choice->query_buffers > 1 && add_regions(choice, plan) > limit)
        choice->query_buffers--;
    choice->stages = MOST_STAGES / choice->groups * choice->groups;
    while (add_regions(choice, plan) > limit && choice->stages > choice->groups)
        choice->stages -= choice->groups;
}

static void add_constants(const struct choice *choice, const struct smelt__spec *spec,
                          struct smelt__plan *plan) {
    struct smelt__indexer_logits_launch *const launch = (void *)plan->launch;
    *launch = (struct smelt__indexer_logits_launch){
        .block_queries = choice->block_queries,
        .block_keys = KEYS,
        .tensor_maps = 1,
        .map_queries = choice->block_queries,
        .map_heads = choice->heads,
        .map_keys = KEYS,
    };
    const int lane_queries = choice->block_queries > WARP ? choice->block_queries / WARP : 1;
    SMELT__PLAN_ADD(
        plan, spec, {"WARPGROUPS", "warpgroups", choice->groups, "warpgroups that compute"},
        {"RACECHECK", "racecheck", smelt__spec_knob(spec, "racecheck", 0),
         "1: every lane of a warp arrives at barriers"},
        {"STAGES", NULL, choice->stages, "KV tiles in flight"},
        {"QUERY_BUFFERS", NULL, choice->query_buffers, "blocks whose queries are in flight"},
        {"PADDED_HEADS", NULL, choice->heads, "rows of a query"},
        {"PART_COLUMNS", NULL, PART_ROWS, "rows of a product"},
        {"BLOCK_QUERIES", NULL, launch->block_queries, "queries of a block"},
        {"LANE_QUERIES", NULL, lane_queries, "queries whose windows a lane reads"},
        {"BLOCK_KEYS", NULL, launch->block_keys, "keys of a KV tile"},
        {"BLOCK_START", NULL, BLOCK_START, "cost of a block before its first KV tile, in KV tiles"},
        {"COARSE", NULL, COARSE, "groups of batches whose costs are kept"},
        {"TOGETHER", NULL, TOGETHER, "batches whose windows are loaded at once"},
        {"ROW_BYTES", NULL, choice->row_bytes, "bytes of a key, and of a head of a query"},
        {"SWIZZLE", NULL, choice->row_bytes < SWIZZLE ? choice->row_bytes : SWIZZLE,
         "bytes of a row in shared memory"},
        {"FILL_BYTES", NULL, FILL_BYTES, "bytes of -inf that one bulk store writes"},
        {"MATH_REGISTERS", NULL, choice->math_registers, "registers of a thread that computes"},
        {"OTHER_REGISTERS", NULL, OTHER_REGISTERS, "registers of a thread that loads or fills"},
        {"TENSOR_MAPS", NULL, launch->tensor_maps, "1: q and k are read through tensor maps"},
        {"MAP_QUERIES", NULL, launch->map_queries, "queries of a box"},
        {"MAP_HEADS", NULL, launch->map_heads, "heads of a box"},
        {"MAP_PAIRS", NULL, launch->map_pairs, "0: a box has no pairs of heads"},
        {"MAP_KEYS", NULL, launch->map_keys, "keys of a box"});
}

/* A head for each group, whose number divides the rows of a product; blocks of whole eights of keys. */
static int refuse(const struct smelt__spec *spec, struct smelt__message *message) {
    const int heads = (int)smelt__spec_get(spec, "heads");
    const int groups = (int)smelt__spec_get(spec, "groups");
    const int block_max = (int)smelt__spec_get(spec, "block_max");
    if (groups == heads && heads <= MOST_HEADS && (heads & (heads - 1)) == 0 &&
        block_max >= LEAST_BLOCK)
        return 0;
    return smelt__spec_refuse(spec, message,
                              "variant sm90_heads needs groups of one head, 1, 2, 4, 8, 16, 32 or "
                              "64 heads, and block_max of at least %d; variant=mma has all",
                              LEAST_BLOCK);
}

int smelt__indexer_logits_fwd_plan_sm90_heads(const struct smelt__spec *spec,
                                              const struct smelt__arch *arch,
                                              struct smelt__plan *plan,
                                              struct smelt__message *message) {
    struct smelt__excess excess = SMELT__NO_EXCESS;
    struct choice choice = {.heads = (int)smelt__spec_get(spec, "heads"),
                            .row_bytes = smelt__indexer_row_bytes(spec),
                            .groups = smelt__spec_knob(spec, "warpgroups", 3)};
    if (refuse(spec, message))
        return -1;
    choice.block_queries = BLOCK_ROWS / choice.heads;
    choose_buffers(arch, &choice, plan);
    const int threads = (choice.groups + 1) * WARPGROUP;
    const int each = smelt__registers_of_thread(arch, threads, 1);
    const int left = each * (choice.groups + 1) - OTHER_REGISTERS;
    choice.math_registers = left / choice.groups / REGISTER_GRAIN * REGISTER_GRAIN;
    if (choice.math_registers > MOST_REGISTERS)
        choice.math_registers = MOST_REGISTERS;
    if (!smelt__limits_hold(arch, threads, 1, plan->shared_bytes, 0, &excess)) {
        smelt__excess_explain(&excess, spec, arch, "fewer warpgroups", "fewer warpgroups", "",
                              message);
        return -1;
    }
    smelt__indexer_logits_fwd_name(spec, plan);
    add_constants(&choice, spec, plan);
    smelt__plan_set_threads(plan, threads, 1);
    plan->item = "tile";
    plan->persistent = 1;
    plan->contiguous = 1;
    return 0;
}
