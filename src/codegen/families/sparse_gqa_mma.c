/*
 * The plans of variant mma of sparse_gqa_fwd, sparse_gqa_bwd and sparse_gqa_scores_fwd. The comments at
 * the heads of templates/<family>.mma.cu explain the numbers.
 *
 * The rule. A warp has one m16 tile of a group's heads and keeps O or dq of it in registers; the warps
 * that a tile leaves divide the keys. Of the shapes below the first is taken that fits, with three
 * thread blocks per multiprocessor if they fit, else two: they hide each other's barriers and gathers
 * (measured on an H200: a fifth faster than two).
 */
#include <limits.h>

#include "codegen/families/sparse_gqa.h"
#include "codegen/plan/limits.h"

enum {
    TILE = 16,             /* heads of an mma tile, columns of a k-step, keys of two n8 tiles */
    WARP = 32,             /* threads */
    MOST_BLOCKS = 3,       /* resident, by the rule */
    FEWEST_WARPS = 4,      /* that the rule asks for */
    OTHER_REGISTERS = 66,  /* addresses, loop state, operands */
    SWIZZLED = 64,         /* columns: pitches are multiples of it */
    TILE_ALIGNMENT = 1024, /* bytes; the swizzle repeats every 1024 */
    SMALL_ALIGNMENT = 128,
};

/* Shapes of the pipeline, best first; the first one for TARGET alone, whose stages have no values. */
static const struct pipeline_shape {
    int block_keys, stages;
} shapes[] = {{128, 2}, {64, 3},  {64, 2}, {32, 3}, {32, 2},
              {128, 2}, {128, 3}, {32, 4}, {64, 4}, {128, 4}};

/* What a kernel computes. */
enum kind { OUT, DQ, TARGET };

/* The choices. */
struct choice {
    enum kind kind;
    int dqk, dv, row_tiles; /* dv: 0 without values */
    int block_keys, stages, key_groups, blocks, query_in_registers;
};

static int row_bytes(int columns) {
    return (columns + SWIZZLED - 1) / SWIZZLED * SWIZZLED * 2;
}

static int warps_of(const struct choice *choice) {
    return choice->row_tiles * choice->key_groups;
}

static void add_regions(const struct choice *choice, struct smelt__plan *plan) {
    const int rows = choice->row_tiles * TILE, staged = choice->stages * choice->block_keys;
    const int key_bytes = staged * row_bytes(choice->dqk);
    const int value_bytes = staged * row_bytes(choice->dv);
    const int sum_bytes = rows * (choice->kind == DQ ? choice->dqk : choice->dv) * 4 - key_bytes;
    plan->region_count = 0;
    smelt__plan_add_region(plan, "QUERY_OFFSET", rows * row_bytes(choice->dqk), TILE_ALIGNMENT,
                           "query tile");
    if (choice->kind == DQ)
        smelt__plan_add_region(plan, "GRAD_OFFSET", rows * row_bytes(choice->dv), TILE_ALIGNMENT,
                               "the heads' dO");
    smelt__plan_add_region(plan, "KEYS_OFFSET", key_bytes, TILE_ALIGNMENT,
                           choice->kind == TARGET
                               ? "key blocks"
                               : "key blocks; at the end, from here on, the sums of the output");
    smelt__plan_add_region(plan, "VALUES_OFFSET", value_bytes > sum_bytes ? value_bytes : sum_bytes,
                           TILE_ALIGNMENT, "their values");
    smelt__plan_add_region(plan, "ROWS_OFFSET", (choice->stages + 1) * choice->block_keys * 4,
                           SMALL_ALIGNMENT, "row numbers of key blocks");
    if (choice->kind == OUT)
        smelt__plan_add_region(plan, "STATE_OFFSET", choice->key_groups * rows * 8, SMALL_ALIGNMENT,
                               "maximum and sum of each partial result, fp32");
    if (choice->kind == TARGET)
        smelt__plan_add_region(plan, "SUMS_OFFSET", 2 * choice->row_tiles * choice->block_keys * 4,
                               SMALL_ALIGNMENT, "sums over a warp's heads of two key blocks, fp32");
    smelt__plan_add_region(plan, "RANGE_OFFSET", 2 * 4, 8, "which items the launch takes");
}

/* An estimate: O if any, a block's scores and probabilities, perhaps the query; or dq, scores and dP. */
static int registers_needed(const struct choice *choice) {
    const int warp_keys = choice->block_keys / choice->key_groups;
    if (choice->kind == DQ)
        return choice->dqk / 2 + warp_keys + warp_keys / 4 + OTHER_REGISTERS;
    return choice->dv / 2 + warp_keys / 2 + warp_keys / 4 +
           (choice->query_in_registers ? choice->dqk / 4 : 0) + OTHER_REGISTERS;
}

static int fits(struct choice *choice, const struct smelt__arch *arch, struct smelt__plan *scratch,
                struct smelt__misses *misses) {
    const int threads = warps_of(choice) * WARP;
    if (choice->block_keys % (choice->key_groups * TILE) != 0 || choice->block_keys > threads ||
        threads > arch->threads_per_multiprocessor / choice->blocks || threads > 1024)
        return 0;
    add_regions(choice, scratch);
    for (choice->query_in_registers = choice->kind != DQ; choice->query_in_registers >= 0;
         choice->query_in_registers--)
        if (smelt__limits_hold(arch, threads, choice->blocks, scratch->shared_bytes,
                               registers_needed(choice), misses))
            return 1;
    return 0;
}

/* Tries the numbers of warps and the shapes that the knobs leave, for a number of blocks. */
static int choose_shape(struct choice *choice, const struct smelt__spec *spec,
                        const struct smelt__arch *arch, struct smelt__plan *scratch,
                        struct smelt__misses *misses) {
    const int block_keys = smelt__spec_knob(spec, "block_keys", 0);
    const int stages = smelt__spec_knob(spec, "stages", 0);
    const int groups = smelt__spec_knob(spec, "key_groups", 0);
    int wanted = 1;
    while (wanted * choice->row_tiles < FEWEST_WARPS)
        wanted *= 2;
    for (size_t i = choice->kind == TARGET ? 0 : 1; i < sizeof shapes / sizeof *shapes; i++) {
        choice->block_keys = shapes[i].block_keys;
        choice->stages = shapes[i].stages;
        if ((block_keys && block_keys != choice->block_keys) ||
            (stages && stages != choice->stages))
            continue;
        for (choice->key_groups = groups ? groups : wanted; choice->key_groups >= 1;
             choice->key_groups = groups ? 0 : choice->key_groups / 2)
            if (fits(choice, arch, scratch, misses))
                return 1;
    }
    return 0;
}

static int choose(struct choice *choice, const struct smelt__spec *spec,
                  const struct smelt__arch *arch, struct smelt__plan *scratch,
                  struct smelt__misses *misses) {
    const int blocks = smelt__spec_knob(spec, "blocks", 0);
    for (choice->blocks = blocks ? blocks : MOST_BLOCKS; choice->blocks >= 1;
         choice->blocks = blocks ? 0 : choice->blocks - 1)
        if (choose_shape(choice, spec, arch, scratch, misses))
            return 1;
    return 0;
}

/* A query's KV heads; of the target, its lists. */
static int items_of(const struct choice *choice, const struct smelt__spec *spec) {
    return choice->kind == TARGET && !smelt__spec_get(spec, "lists")
               ? 1
               : (int)smelt__spec_get(spec, "kv_heads");
}

static void add_constants(const struct choice *choice, const struct smelt__spec *spec,
                          struct smelt__plan *plan) {
    const int kv_heads = (int)smelt__spec_get(spec, "kv_heads");
    const struct smelt__plan_row in_registers = {"QUERY_IN_REGISTERS", NULL,
                                                 choice->query_in_registers,
                                                 "1: query fragments are loaded once"};
    const struct smelt__plan_row has_sink = {
        "HAS_SINK", NULL, choice->kind == OUT ? smelt__spec_knob(spec, "sink", 0) : 0,
        "1: a logit per head in the denominator"};
    const struct smelt__plan_row constants[] = {
        {"BLOCK_KEYS", "block_keys", choice->block_keys, "rows of one step of the main loop"},
        {"STAGES", "stages", choice->stages, "key blocks in flight"},
        {"KEY_GROUPS", "key_groups", choice->key_groups, "warps that divide a block's keys"},
        {"ROW_TILES", NULL, choice->row_tiles, "m16 tiles of a group's heads"},
        {"BLOCK_HEADS", NULL, (int)smelt__spec_get(spec, "heads") / kv_heads,
         "heads of a thread block"},
        {"BLOCK_ROWS", NULL, choice->row_tiles * TILE, "a group's heads, padded"},
        {"WARPS", NULL, warps_of(choice), "of a thread block"},
        {"HEAD_BLOCKS", NULL, items_of(choice, spec), "items of a query"},
        {"QUERIES_AHEAD", NULL, WARP, "entries of a query list that a warp holds"},
    };
    smelt__plan_add_rows(plan, spec, constants, (int)(sizeof constants / sizeof *constants));
    if (choice->kind != DQ)
        smelt__plan_add_rows(plan, spec, &in_registers, 1);
    if (choice->kind == OUT)
        smelt__plan_add_rows(plan, spec, &has_sink, 1);
}

static int plan_mma(const struct smelt__spec *spec, const struct smelt__arch *arch, enum kind kind,
                    struct smelt__plan *plan, struct smelt__message *message) {
    struct smelt__misses misses = SMELT__NO_MISSES;
    const int group = (int)smelt__spec_get(spec, "heads") / (int)smelt__spec_get(spec, "kv_heads");
    static const char *const templates[] = {[OUT] = "sparse_gqa_fwd.mma.cu",
                                            [DQ] = "sparse_gqa_bwd.mma.cu",
                                            [TARGET] = "sparse_gqa_scores_fwd.mma.cu"};
    struct choice choice = {.kind = kind,
                            .dqk = (int)smelt__spec_get(spec, "dqk"),
                            .dv = kind == TARGET ? 0 : (int)smelt__spec_get(spec, "dv"),
                            .row_tiles = (group + TILE - 1) / TILE};
    if (!choose(&choice, spec, arch, plan, &misses)) {
        smelt__misses_explain(
            &misses, spec, arch, "fewer block_keys, stages or blocks", "fewer blocks or block_keys",
            "every warp needs whole tiles of 16 keys, and a block of keys at most "
            "as many as the thread block has threads",
            message);
        return -1;
    }
    plan->template_name = templates[kind];
    smelt__sparse_gqa_name(spec, plan);
    add_constants(&choice, spec, plan);
    add_regions(&choice, plan);
    smelt__plan_set_threads(plan, warps_of(&choice) * WARP, choice.blocks);
    plan->item = "query";
    plan->blocks_per_item = items_of(&choice, spec);
    return 0;
}

int smelt__sparse_gqa_fwd_plan_mma(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                   struct smelt__plan *plan, struct smelt__message *message) {
    return plan_mma(spec, arch, OUT, plan, message);
}

int smelt__sparse_gqa_bwd_plan_mma(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                   struct smelt__plan *plan, struct smelt__message *message) {
    return plan_mma(spec, arch, DQ, plan, message);
}

int smelt__sparse_gqa_scores_fwd_plan_mma(const struct smelt__spec *spec,
                                          const struct smelt__arch *arch, struct smelt__plan *plan,
                                          struct smelt__message *message) {
    return plan_mma(spec, arch, TARGET, plan, message);
}
