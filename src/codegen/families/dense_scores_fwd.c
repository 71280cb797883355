/*
 * The kernel family dense_scores_fwd: attention's probabilities over windows, and the plan of the
 * streamed products (templates/common/streamed_product.cuh, streamed_wgmma.cuh), which dense_lse_fwd
 * uses, too.
 *
 * The rule of variant mma. A warp multiplies 64 x 64 elements if registers and shared memory have room,
 * so that it reads 4 bytes of shared memory for 128 multiplications, else 32 x 64. The keys of a block
 * stay in shared memory, as many as fit beside a ring of stages, since each is read once per item: 128
 * rows of 576 columns halve the traffic of 64. An item has few tiles of queries: larger items leave
 * multiprocessors idle at a launch's end for longer than reading the keys takes.
 */
#include "codegen/families/dense_scores_fwd.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

enum {
    WARP = 32,         /* threads */
    SLAB_ROWS = 64,    /* of the stream, of a warp */
    PART_COLUMNS = 64, /* of both operands at a time */
    OTHER_REGISTERS = 40,
    ALIGNMENT = 1024,    /* bytes; the swizzle repeats every 1024 */
    LEAST_ROWS = 8,      /* columns of an mma tile */
    WARPGROUP = 128,     /* threads */
    WARPGROUPS = 2,      /* of variant sm90 */
    WARPGROUP_ROWS = 64, /* that stay in its registers */
    LEAST_STAGES = 2,    /* of variant sm90 */
    MOST_STAGES = 14,
    MOST_SM90_SLABS = 2,
    MOST_SM90_PARTS = 9,
    UNNAMED = -1,
    LEAST_QUERY_ELEMENTS = 1024, /* rows times columns; with fewer, mma is faster */
    WIDE_PARTS = 8,              /* with more, consumers need the most registers */
    WIDE_CONSUMER_REGISTERS = 240,
    WIDE_PRODUCER_REGISTERS = 24,
    CONSUMER_REGISTERS = 232,
    PRODUCER_REGISTERS = 40,
    STEP_BYTES = 32,  /* of struct step */
    OFFSET_BYTES = 4, /* of what is subtracted from a column's scores */
    BARRIER_BYTES = 8,
    ITEM_ROWS = 512 /* of queries in an item */
};

/* Preferred shapes, best first. */
static const struct smelt__streamed_shape shapes[] = {
    {128, 4, 4, 2}, {128, 2, 2, 4}, {128, 2, 2, 3}, {128, 2, 2, 2}, {64, 2, 4, 3}, {64, 2, 4, 2},
    {64, 2, 2, 3},  {64, 2, 2, 2},  {64, 2, 1, 3},  {64, 2, 1, 2},  {64, 4, 4, 2}, {64, 4, 2, 2},
    {32, 2, 4, 3},  {32, 2, 4, 2},  {32, 2, 2, 3},  {32, 2, 2, 2},  {32, 2, 1, 2},
};

static const struct smelt__key keys[] = {
    SMELT__DENSE_SHAPE,
    {SMELT__KNOB("block_keys", "keys that stay in shared memory"), SMELT__AUTO_ONE_OF(32, 64, 128),
     SMELT__TUNED, .variants = "mma"},
    SMELT__DENSE_KNOBS,
    {SMELT__KNOB("item_tiles", "tiles of queries of an item"), SMELT__AUTO_RANGE(1, 32),
     SMELT__TUNED_AT(1, 2, 4, 8)},
};

int smelt__dense_check(const struct smelt__spec *spec, struct smelt__message *message) {
    const int64_t heads = smelt__spec_get(spec, "heads");
    const int64_t kv_heads = smelt__spec_get(spec, "kv_heads");
    if (heads % kv_heads == 0)
        return 0;
    return smelt__spec_refuse(spec, message,
                              "kv_heads=%" PRId64 " does not divide heads=%" PRId64
                              "; each key head is read by heads / kv_heads query heads",
                              kv_heads, heads);
}

int smelt__dense_rows(int count, int least, int most) {
    int rows = least;
    while (rows < count && rows < most)
        rows *= 2;
    return rows;
}

/* ---- the streamed product -------------------------------------------------------------------- */

static int parts_of(const struct smelt__spec *spec) {
    return ((int)smelt__spec_get(spec, "dqk") + PART_COLUMNS - 1) / PART_COLUMNS;
}

static void add_regions(const struct smelt__spec *spec, const struct smelt__streamed_shape *shape,
                        struct smelt__plan *plan) {
    plan->region_count = 0;
    smelt__plan_add_region(plan, "RESIDENT_OFFSET",
                           parts_of(spec) * shape->resident_rows * PART_COLUMNS * 2, ALIGNMENT,
                           "rows that stay during an item");
    smelt__plan_add_region(plan, "STREAM_OFFSET",
                           shape->stages * shape->slabs * SLAB_ROWS * PART_COLUMNS * 2, ALIGNMENT,
                           "parts of the stream");
    smelt__plan_add_region(plan, "MERGED_OFFSET", shape->resident_rows * shape->slabs * 8, 8,
                           "maxima and sums of the rows' slabs");
}

/* An estimate: products, a slab's offsets, two steps' operands. */
static int registers_needed(const struct smelt__streamed_shape *shape) {
    const int slab_tiles = SLAB_ROWS / 8, row_tiles = shape->row_tiles;
    return 4 * row_tiles * slab_tiles + 2 * slab_tiles + 2 * (4 * row_tiles + 2 * slab_tiles) +
           OTHER_REGISTERS;
}

static int is_asked(const struct smelt__spec *spec, const char *knob, int value) {
    return smelt__spec_knob(spec, knob, value) == value;
}

/* The first preferred shape that the knobs leave and that fits; with stages that none of them has,
 * those. */
static int choose(const struct smelt__spec *spec, const struct smelt__arch *arch, const char *rows,
                  struct smelt__streamed_shape *shape, struct smelt__plan *plan,
                  struct smelt__excess *excess) {
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        *shape = shapes[i];
        shape->stages = smelt__spec_knob(spec, "stages", shape->stages);
        if (!is_asked(spec, rows, shape->resident_rows) ||
            !is_asked(spec, "row_tiles", shape->row_tiles) ||
            !is_asked(spec, "slabs", shape->slabs))
            continue;
        add_regions(spec, shape, plan);
        if (smelt__limits_hold(arch, smelt__streamed_warps(shape) * WARP, 1, plan->shared_bytes,
                               registers_needed(shape), excess))
            return 1;
    }
    return 0;
}

/* What the spec says of every kernel, and its threads. */
static void add_dense(const struct smelt__spec *spec, int threads, struct smelt__plan *plan) {
    smelt__plan_add(plan, "HEADS", (int)smelt__spec_get(spec, "heads"), SMELT__FROM_SPEC,
                    "query heads");
    smelt__plan_add(plan, "KV_HEADS", (int)smelt__spec_get(spec, "kv_heads"), SMELT__FROM_SPEC,
                    "key heads");
    smelt__plan_add(plan, "DQK", (int)smelt__spec_get(spec, "dqk"), SMELT__FROM_SPEC,
                    "width of a query and of a key, elements");
    smelt__plan_set_threads(plan, threads, 1);
    plan->persistent = 1;
}

/* `rows`: the knob of the resident rows. */
static void add_streamed(const struct smelt__spec *spec, const char *rows,
                         const struct smelt__streamed_shape *shape, struct smelt__plan *plan) {
    add_dense(spec, smelt__streamed_warps(shape) * WARP, plan);
    SMELT__PLAN_ADD(plan, spec,
                    {"RESIDENT_ROWS", rows, shape->resident_rows, "rows that stay during an item"},
                    {"ROW_TILES", "row_tiles", shape->row_tiles, "m16 tiles of a warp"},
                    {"SLABS", "slabs", shape->slabs, "slabs of 64 rows of a tile of the stream"},
                    {"STAGES", "stages", shape->stages, "parts of the stream in flight"});
}

int smelt__streamed_plan(const struct smelt__spec *spec, const struct smelt__arch *arch,
                         const char *rows, struct smelt__streamed_shape *shape,
                         struct smelt__plan *plan, struct smelt__message *message) {
    struct smelt__excess excess = SMELT__NO_EXCESS;
    if (!choose(spec, arch, rows, shape, plan, &excess)) {
        smelt__excess_explain(&excess, spec, arch, "fewer rows, slabs or stages", "fewer row_tiles",
                              "row_tiles=2, or row_tiles=4 with 64 rows or more and 2 or 4 slabs",
                              message);
        return -1;
    }
    add_streamed(spec, rows, shape, plan);
    return 0;
}

/* ---- the product with wgmma ------------------------------------------------------------------ */

static int sm90_stage_bytes(const struct smelt__streamed_shape *shape) {
    const int rows = shape->slabs * SLAB_ROWS;
    return (rows > shape->resident_rows ? rows : shape->resident_rows) * PART_COLUMNS * 2;
}

static int add_sm90_regions(const struct smelt__streamed_shape *shape, int column_bytes,
                            int step_bytes, struct smelt__plan *plan) {
    plan->region_count = 0;
    smelt__plan_add_region(plan, "STREAM_OFFSET", shape->stages * sm90_stage_bytes(shape),
                           ALIGNMENT, "parts of the resident rows or of the stream, in each stage");
    if (column_bytes > 0)
        smelt__plan_add_region(plan, "OFFSETS_OFFSET",
                               shape->stages * shape->slabs * SLAB_ROWS * column_bytes, 16,
                               "what is subtracted from a tile's scores, in each stage");
    if (step_bytes > 0)
        smelt__plan_add_region(plan, "STEPS_OFFSET", shape->stages * step_bytes, 16,
                               "description of what each stage holds");
    smelt__plan_add_region(plan, "BARRIERS_OFFSET", 2 * shape->stages * BARRIER_BYTES, 8,
                           "mbarriers");
    return plan->shared_bytes;
}

static int refuse_sm90(const struct smelt__spec *spec, const char *reason,
                       struct smelt__message *message) {
    return smelt__spec_refuse(spec, message, "variant=sm90 has registers for %s", reason);
}

int smelt__dense_sm90_plan(const struct smelt__spec *spec, const struct smelt__arch *arch,
                           int column_bytes, int step_bytes, struct smelt__streamed_shape *shape,
                           struct smelt__plan *plan, struct smelt__message *message) {
    const int asked = smelt__spec_knob(spec, "stages", 0), wide = parts_of(spec) > WIDE_PARTS;
    struct smelt__excess excess = SMELT__NO_EXCESS;
    *shape = (struct smelt__streamed_shape){WARPGROUP_ROWS * WARPGROUPS, 1,
                                            smelt__spec_knob(spec, "slabs", MOST_SM90_SLABS),
                                            asked ? asked : MOST_STAGES};
    if (parts_of(spec) > MOST_SM90_PARTS)
        return refuse_sm90(spec, "a dqk of up to 576", message);
    if (shape->slabs > MOST_SM90_SLABS)
        return refuse_sm90(spec, "slabs=1 or 2", message);
    while (!asked && shape->stages > LEAST_STAGES &&
           add_sm90_regions(shape, column_bytes, step_bytes, plan) >
               smelt__shared_of_block(arch, 1))
        shape->stages--;
    if (!smelt__limits_hold(arch, (WARPGROUPS + 1) * WARPGROUP, 1,
                            add_sm90_regions(shape, column_bytes, step_bytes, plan), 0, &excess)) {
        smelt__excess_explain(&excess, spec, arch, "fewer slabs or stages", "fewer slabs", "",
                              message);
        return -1;
    }
    add_dense(spec, (WARPGROUPS + 1) * WARPGROUP, plan);
    SMELT__PLAN_ADD(
        plan, spec, {"SLABS", "slabs", shape->slabs, "slabs of 64 rows of a tile of the stream"},
        {"STAGES", "stages", shape->stages, "parts of resident rows or of the stream in flight"},
        {"STAGE_BYTES", NULL, sm90_stage_bytes(shape), "bytes of such a part"},
        {"CONSUMERS", NULL, WARPGROUPS, "warpgroups that compute"},
        {"CONSUMER_REGISTERS", NULL, wide ? WIDE_CONSUMER_REGISTERS : CONSUMER_REGISTERS,
         "registers of a thread that computes"},
        {"PRODUCER_REGISTERS", NULL, wide ? WIDE_PRODUCER_REGISTERS : PRODUCER_REGISTERS,
         "registers of a thread that copies"},
        {"RACECHECK", "racecheck", smelt__spec_knob(spec, "racecheck", 0),
         "1: every lane of a warp arrives at barriers"});
    return 0;
}

void smelt__dense_name(const struct smelt__spec *spec, const char *stem, struct smelt__plan *plan) {
    const int kv_heads = (int)smelt__spec_get(spec, "kv_heads");
    char several[16] = "";
    if (kv_heads > 1)
        snprintf(several, sizeof several, "_kv%d", kv_heads);
    snprintf(plan->kernel_name, sizeof plan->kernel_name, "smelt_%s_%s_h%d_d%d%s", stem,
             plan->variant, (int)smelt__spec_get(spec, "heads"), (int)smelt__spec_get(spec, "dqk"),
             several);
}

/* ---- dense_scores_fwd ------------------------------------------------------------------------ */

/* Rows of a query: heads that read a key head, padded. */
static int query_rows_of(const struct smelt__spec *spec) {
    const int group = (int)(smelt__spec_get(spec, "heads") / smelt__spec_get(spec, "kv_heads"));
    return smelt__dense_rows(group, LEAST_ROWS, SLAB_ROWS);
}

/* What follows from the shape. */
static void add_items(const struct smelt__spec *spec, const struct smelt__streamed_shape *shape,
                      struct smelt__plan *plan) {
    struct smelt__dense_scores_launch *const launch = (void *)plan->launch;
    const int query_rows = query_rows_of(spec);
    const int item_tiles =
        smelt__spec_knob(spec, "item_tiles", ITEM_ROWS / (shape->slabs * SLAB_ROWS));
    launch->block_keys = shape->resident_rows;
    launch->query_rows = query_rows;
    launch->tile_queries = shape->slabs * (SLAB_ROWS / query_rows);
    launch->item_queries = item_tiles * launch->tile_queries;
    SMELT__PLAN_ADD(
        plan, spec, {"BLOCK_KEYS", NULL, shape->resident_rows, "keys of an item"},
        {"ITEM_TILES", "item_tiles", item_tiles, "tiles of queries of an item"},
        {"QUERY_ROWS", NULL, query_rows, "rows of a query: heads that read a key head, padded"},
        {"TILE_QUERIES", NULL, launch->tile_queries, "queries of a tile"});
    plan->item = "tile";
}

static int plan_mma(const struct smelt__spec *spec, const struct smelt__arch *arch,
                    struct smelt__plan *plan, struct smelt__message *message) {
    struct smelt__streamed_shape shape;
    smelt__dense_name(spec, "dense_scores", plan);
    if (smelt__streamed_plan(spec, arch, "block_keys", &shape, plan, message))
        return -1;
    add_items(spec, &shape, plan);
    return 0;
}

/* Two warpgroups have 64 keys each. */
static int plan_sm90(const struct smelt__spec *spec, const struct smelt__arch *arch,
                     struct smelt__plan *plan, struct smelt__message *message) {
    struct smelt__streamed_shape shape;
    smelt__dense_name(spec, "dense_scores", plan);
    if (smelt__spec_knob(spec, "variant", UNNAMED) == UNNAMED &&
        query_rows_of(spec) * (int)smelt__spec_get(spec, "dqk") < LEAST_QUERY_ELEMENTS)
        return smelt__spec_refuse(spec, message,
                                  "variant=mma is faster with few heads of few columns");
    if (smelt__dense_sm90_plan(spec, arch, OFFSET_BYTES, STEP_BYTES, &shape, plan, message))
        return -1;
    add_items(spec, &shape, plan);
    ((struct smelt__dense_scores_launch *)(void *)plan->launch)->tensor_maps = 1;
    return 0;
}

const struct smelt__kernel_family smelt__dense_scores_fwd = {
    .schema = {.name = "dense_scores_fwd",
               .summary = "attention's probabilities over windows, summed over the heads",
               SMELT__KEYS(keys),
               .check = smelt__dense_check},
    SMELT__VARIANTS({"sm90", plan_sm90}, {"mma", plan_mma}),
};
