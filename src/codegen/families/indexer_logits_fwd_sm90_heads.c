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
    WARPGROUP = 128,  /* threads */
    WARP = 32,        /* lanes; each reads windows of a batch of queries */
    KEYS = 128,       /* of a KV tile */
    PART_ROWS = 64,   /* of a product */
    BLOCK_ROWS = 256, /* queries with their heads */
    MOST_HEADS = 64,
    LEAST_BLOCK = 8,   /* keys of a block: a product's columns that one instruction's lanes have */
    FILL_BYTES = 2048, /* of -inf, one bulk store */
    MOST_STAGES = 8,
    MOST_QUERY_BUFFERS = 2,
    BLOCK_START = 2, /* KV tiles: what a block costs before its first */
};

/* A second buffer of queries if two stages for each warpgroup fit beside it. */
static void choose_buffers(const struct smelt__arch *arch,
                           struct smelt__indexer_logits_block *block, struct smelt__plan *plan) {
    const int limit = smelt__shared_of_block(arch, 1);
    block->buffers = MOST_QUERY_BUFFERS;
    block->stages = 2 * block->groups;
    while (block->buffers > 1 && smelt__indexer_logits_regions(block, plan) > limit)
        block->buffers--;
    smelt__indexer_logits_share(arch, block, MOST_STAGES, plan);
}

static void add_constants(const struct smelt__indexer_logits_block *block, int heads,
                          const struct smelt__spec *spec, struct smelt__plan *plan) {
    struct smelt__indexer_logits_launch *const launch = (void *)plan->launch;
    *launch = (struct smelt__indexer_logits_launch){
        .block_queries = block->queries,
        .block_keys = KEYS,
        .tensor_maps = 1,
        .map_queries = block->queries,
        .map_heads = heads,
        .map_keys = KEYS,
    };
    const int lane_queries = block->queries > WARP ? block->queries / WARP : 1;
    SMELT__PLAN_ADD(plan, spec,
                    {"WARPGROUPS", "warpgroups", block->groups, "warpgroups that compute"},
                    {"RACECHECK", "racecheck", smelt__spec_knob(spec, "racecheck", 0),
                     "1: every lane of a warp arrives at barriers"},
                    {"STAGES", NULL, block->stages, "KV tiles in flight"},
                    {"QUERY_BUFFERS", NULL, block->buffers, "blocks whose queries are in flight"},
                    {"PADDED_HEADS", NULL, heads, "rows of a query"},
                    {"PART_COLUMNS", NULL, PART_ROWS, "rows of a product"},
                    {"BLOCK_QUERIES", NULL, launch->block_queries, "queries of a block"},
                    {"LANE_QUERIES", NULL, lane_queries, "queries whose windows a lane reads"},
                    {"BLOCK_KEYS", NULL, launch->block_keys, "keys of a KV tile"},
                    {"BLOCK_START", NULL, BLOCK_START,
                     "cost of a block before its first KV tile, in KV tiles"});
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
    const int heads = (int)smelt__spec_get(spec, "heads");
    struct smelt__indexer_logits_block block = {.queries = BLOCK_ROWS / heads,
                                                .rows = BLOCK_ROWS,
                                                .keys = KEYS,
                                                .row_bytes = smelt__indexer_row_bytes(spec),
                                                .fill_bytes = FILL_BYTES,
                                                .staging_bytes = -1,
                                                .groups = smelt__spec_knob(spec, "warpgroups", 3)};
    if (refuse(spec, message))
        return -1;
    choose_buffers(arch, &block, plan);
    const int threads = (block.groups + 1) * WARPGROUP;
    if (!smelt__limits_hold(arch, threads, 1, plan->shared_bytes, 0, &excess)) {
        smelt__excess_explain(&excess, spec, arch, "fewer warpgroups", "fewer warpgroups", "",
                              message);
        return -1;
    }
    smelt__indexer_logits_fwd_name(spec, plan);
    add_constants(&block, heads, spec, plan);
    smelt__indexer_logits_finish(&block, spec, plan);
    return 0;
}
