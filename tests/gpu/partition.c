/*
 * Compares the partition's two kernels with the reference, entry for entry: ranges, lists and
 * extents, which no operator returns. Arguments: kernel_alone.h.
 */
#include "kernel_alone.h"

#include <limits.h>

#include "ops/sparse_attn_partition.h"
#include "reference/operators.h"

enum { GUARD = 64 /* bytes after the workspace */, POISON = 0xA5, FAR = 1 << 20 };

/* The valid slots of a row. */
enum fill { SCATTERED, ALL, NONE, PREFIX, FIRST, LAST, AT_BOUNDS, FILLS };
enum list { ALL_QUERIES, LISTED, LISTED_AND_COUNTED, LISTS };

/* One problem. */
struct shape {
    const char *name;
    const int *bounds; /* of the buckets */
    int batches, tokens, rows, width;
    int past;    /* offset of the first row from a multiple of 16 bytes, in ints */
    int padding; /* ints between rows; FAR or more: without memory */
    int lengths; /* 1: topk_length is given */
    enum fill fill;
    enum list list;
    int buckets;
    int run; /* entries of a run, instead of the rule's; 0: the rule's */
};

static const int models[] = {256, 512, 1024, 1536, 2048};
static const int small[] = {1, 2, 3, 4, 5, 6, 7, 8, 12};
static const int few[] = {10, 20, 40};
static const int halves[] = {32, 64, 128};
static const int from_0[] = {0, 64};
static const int widths[] = {64, 128, 200};

/* Fixed cases: typical use and boundaries. */
static const struct shape shapes[] = {
    {"one slot", small, 1, 1, 1, 1, 0, 0, 0, ALL, ALL_QUERIES, 1, 0},
    {"no rows", few, 1, 40, 0, 33, 0, 0, 0, SCATTERED, ALL_QUERIES, 2, 0},
    {"topk 2048", models, 1, 20, 5000, 2048, 0, 0, 0, AT_BOUNDS, ALL_QUERIES, 5, 0},
    {"prefixes", halves, 2, 150, 400, 128, 0, 0, 0, PREFIX, ALL_QUERIES, 3, 0},
    {"nothing valid", few, 1, 70, 100, 64, 0, 0, 0, NONE, ALL_QUERIES, 2, 0},
    {"all valid", few, 1, 70, 100, 64, 0, 0, 0, ALL, ALL_QUERIES, 2, 0},
    {"last slot", from_0, 3, 30, 100, 67, 0, 0, 0, LAST, ALL_QUERIES, 2, 0},
    {"first slot", from_0, 3, 30, 100, 67, 1, 0, 0, FIRST, ALL_QUERIES, 2, 0},
    {"rows at 4 bytes", halves, 1, 60, 300, 97, 1, 2, 0, SCATTERED, ALL_QUERIES, 3, 0},
    {"rows at 12 bytes", small, 1, 60, 300, 3, 3, 0, 0, SCATTERED, ALL_QUERIES, 3, 0},
    {"lengths", widths, 2, 90, 300, 200, 2, 5, 1, ALL, ALL_QUERIES, 3, 0},
    {"nine buckets", small, 1, 600, 50, 12, 0, 0, 0, SCATTERED, ALL_QUERIES, 9, 0},
    {"several blocks", small, 1, 2500, 50, 8, 0, 0, 0, SCATTERED, ALL_QUERIES, 5, 0},
    {"a query list", few, 2, 90, 300, 40, 0, 0, 1, SCATTERED, LISTED, 3, 0},
    {"a counted list", few, 2, 90, 300, 40, 0, 4, 0, SCATTERED, LISTED_AND_COUNTED, 3, 0},
    {"offsets beyond 2^31", small, 2, 3, 300, 100, 0, 600000000, 0, PREFIX, ALL_QUERIES, 2, 0},
    {"long runs", small, 1, 5000, 50, 4, 0, 0, 0, SCATTERED, ALL_QUERIES, 3, 2048},
};

/* Too slow on the emulator. */
static const struct shape large_shapes[] = {
    {"8192 queries", models, 1, 8192, 8192, 2048, 0, 0, 0, AT_BOUNDS, ALL_QUERIES, 5, 0},
    {"rows at 8 bytes", models, 2, 3000, 9000, 2047, 2, 1, 1, SCATTERED, ALL_QUERIES, 5, 0},
    {"three million queries", small, 1, 3000000, 50, 8, 0, 0, 0, SCATTERED, ALL_QUERIES, 5, 0},
    {"a million listed", few, 4, 200000, 90, 65, 1, 0, 1, SCATTERED, LISTED_AND_COUNTED, 3, 0},
};

/* A problem's arrays on the host and on the device. */
static struct problem {
    const struct shape *shape;
    int64_t queries, capacity; /* of the call; of the list, or the number of queries */
    int32_t *indices;          /* rows without gaps */
    int32_t *lengths, *list, count;
    int32_t *device_indices, *device_lengths, *device_list, *device_count;
    void *workspace;
    size_t workspace_bytes;
} problem;

/* ---- problems -------------------------------------------------------------------------------- */

/* The smallest legal and illegal indices and their neighbours, and others. */
static int32_t draw_index(int rows, int valid) {
    const int32_t illegal[] = {-1, rows, INT32_MIN, INT32_MAX, rows < INT_MAX ? rows + 1 : rows};
    if (!valid || rows == 0)
        return illegal[below(sizeof illegal / sizeof *illegal)];
    switch (below(4)) {
    case 0:
        return 0;
    case 1:
        return rows - 1;
    default:
        return below(rows);
    }
}

static int is_valid_slot(const struct shape *shape, int64_t query, int slot, int chance) {
    switch (shape->fill) {
    case ALL:
        return 1;
    case PREFIX:
        return slot <= query % shape->tokens;
    case FIRST:
        return slot == 0;
    case LAST:
        return slot == shape->width - 1;
    case AT_BOUNDS: { /* a bound's number of slots, or one more or less */
        const int bound = shape->bounds[query % shape->buckets];
        return slot < bound + (int)(query / shape->buckets % 3) - 1;
    }
    case SCATTERED:
        return below(100) < chance;
    default:
        return 0;
    }
}

static void fill_row(const struct shape *shape, int64_t query, int32_t *row) {
    const int chance = below(101);
    for (int slot = 0; slot < shape->width; slot++)
        row[slot] = draw_index(shape->rows, is_valid_slot(shape, query, slot, chance));
}

static void fill_list(void) {
    const int32_t outside[] = {-1, (int32_t)problem.queries, INT32_MIN, INT32_MAX};
    for (int64_t i = 0; i < problem.capacity; i++)
        problem.list[i] = below(8) == 0 ? outside[below(4)] : below((int)problem.queries);
    const int64_t counts[] = {problem.capacity, problem.capacity * 2 / 3, 0, INT32_MAX, -5};
    problem.count = (int32_t)counts[below(5)];
}

static int64_t row_stride(const struct shape *shape) {
    return shape->width + shape->padding;
}

static void make_problem(const struct shape *shape) {
    problem = (struct problem){.shape = shape};
    problem.queries = (int64_t)shape->batches * shape->tokens;
    problem.capacity = shape->list == ALL_QUERIES ? problem.queries : problem.queries * 5 / 4;
    problem.indices = take((size_t)(problem.queries * shape->width) * sizeof(int32_t));
    problem.lengths = take((size_t)problem.queries * sizeof(int32_t));
    problem.list = take((size_t)problem.capacity * sizeof(int32_t));
    for (int64_t query = 0; query < problem.queries; query++) {
        const int odd[] = {-7, 0, INT32_MAX};
        fill_row(shape, query, problem.indices + query * shape->width);
        problem.lengths[query] = below(4) == 0 ? odd[below(3)] : below(shape->width + 2);
    }
    fill_list();
    problem.workspace_bytes = smelt__partition_layout(problem.capacity, shape->buckets).bytes;
}

/* ---- the device ------------------------------------------------------------------------------ */

/* Distant rows have no memory between them; other gaps hold a valid index, so that reading one
 * gives wrong results. */
static int32_t *copy_indices(const struct shape *shape) {
    const size_t row = (size_t)shape->width * sizeof(int32_t);
    const size_t step = (size_t)row_stride(shape) * sizeof(int32_t);
    if (shape->padding >= FAR)
        return copy_rows("indices", problem.indices,
                         (struct rows){problem.queries, row, row, step});
    const size_t bytes = (size_t)shape->past * sizeof(int32_t) + (size_t)problem.queries * step;
    int32_t *const staged = filled(bytes, 0);
    for (int64_t query = 0; query < problem.queries; query++)
        memcpy(staged + shape->past + query * row_stride(shape),
               problem.indices + query * shape->width, row);
    return copy("indices", staged, bytes);
}

/* On the emulator, reads between rows are reported. */
static void forbid_gaps(const struct shape *shape) {
    const struct emu_interface *emulator = smelt__emulator();
    const uint64_t base = (uint64_t)(uintptr_t)problem.device_indices;
    if (!emulator)
        return;
    emulator->forbid((uint64_t)(uintptr_t)problem.workspace + problem.workspace_bytes, GUARD);
    if (shape->past)
        emulator->forbid(base, (size_t)shape->past * sizeof(int32_t));
    for (int64_t query = 0; query < problem.queries; query++) {
        int64_t slots = shape->width;
        if (shape->lengths && problem.lengths[query] < slots)
            slots = problem.lengths[query] > 0 ? problem.lengths[query] : 0;
        const int64_t end = shape->past + query * row_stride(shape) + slots;
        const int last = query == problem.queries - 1 && shape->padding >= FAR;
        if (row_stride(shape) > slots && !last)
            emulator->forbid(base + (uint64_t)end * sizeof(int32_t),
                             (size_t)(row_stride(shape) - slots) * sizeof(int32_t));
    }
}

/* The params that the forward pass's packing would give. */
static struct work_params work_params(void) {
    const struct shape *shape = problem.shape;
    return (struct work_params){
        .indices = problem.device_indices + shape->past,
        .topk_length = shape->lengths ? problem.device_lengths : NULL,
        .queries = shape->list != ALL_QUERIES ? problem.device_list : NULL,
        .query_count = shape->list == LISTED_AND_COUNTED ? problem.device_count : NULL,
        .indices_batch_stride = shape->tokens * row_stride(shape),
        .indices_token_stride = row_stride(shape),
        .topk_length_batch_stride = shape->tokens,
        .topk_length_token_stride = 1,
        .batches = shape->batches,
        .tokens = shape->tokens,
        .rows = shape->rows,
        .width = shape->width,
        .query_capacity = (int)problem.capacity,
    };
}

/* Poisons the workspace and runs both kernels. */
static int run_kernels(const struct shape *shape) {
    const struct work_params work = work_params();
    const struct smelt__partition_kernels kernels = {.count = alone.kernels[0],
                                                     .place = alone.kernels[1]};
    struct sparse_attn_partition_params params =
        smelt__partition_params(&work, shape->bounds, shape->buckets, problem.workspace);
    if (shape->run) {
        params.run = shape->run;
        params.runs = (int)((problem.capacity + shape->run - 1) / shape->run);
        params.row_lanes = 4;
        params.runs_at_once = 4;
    }
    return fill(problem.workspace, POISON, problem.workspace_bytes + GUARD) &&
           works(smelt_stream_synchronize(alone.context, NULL), "synchronize") &&
           works(smelt__partition_launch(alone.context, &kernels, &params, NULL), "launch") &&
           works(smelt_stream_synchronize(alone.context, NULL), "synchronize");
}

/* ---- judging --------------------------------------------------------------------------------- */

static int judge(void) {
    const struct shape *shape = problem.shape;
    const struct smelt__partition_layout layout =
        smelt__partition_layout(problem.capacity, shape->buckets);
    smelt_sparse_attn_args args = SMELT_SPARSE_ATTN_ARGS_INIT;
    const struct work_params work = work_params();
    args.batches = shape->batches;
    args.tokens = shape->tokens;
    args.rows = shape->rows;
    args.width = shape->width;
    args.indices.data = problem.indices;
    args.indices.strides[0] = (int64_t)shape->tokens * shape->width;
    args.indices.strides[1] = shape->width;
    args.topk_length.data = shape->lengths ? problem.lengths : NULL;
    args.topk_length.strides[0] = work.topk_length_batch_stride;
    args.topk_length.strides[1] = work.topk_length_token_stride;
    args.queries.data = shape->list != ALL_QUERIES ? problem.list : NULL;
    args.query_count.data = shape->list == LISTED_AND_COUNTED ? &problem.count : NULL;
    args.query_capacity = shape->list != ALL_QUERIES ? problem.capacity : 0;
    const size_t list_bytes = (size_t)problem.capacity * sizeof(int32_t);
    int32_t ranges[2 * PARTITION_MOST_BUCKETS];
    struct smelt__partition_lists wanted = {ranges, take(list_bytes), take(list_bytes)};
    const int64_t listed =
        smelt__partition_reference(&args, shape->bounds, shape->buckets, &wanted);
    const char *const got = problem.workspace;
    return same("ranges", got + layout.ranges, ranges, 2 * (size_t)shape->buckets, 4) &&
           same("list", got + layout.list, wanted.list, (size_t)listed, 4) &&
           same("extents", got + layout.extents, wanted.extents, (size_t)listed, 4) &&
           same("past the workspace", got + layout.bytes, filled(GUARD, POISON), GUARD, 1);
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void prepare(const void *of) {
    const struct shape *const shape = of;
    make_problem(shape);
    problem.device_indices = copy_indices(shape);
    problem.device_lengths = copy("topk_length", problem.lengths, (size_t)problem.queries * 4);
    problem.device_list = copy("queries", problem.list, (size_t)problem.capacity * 4);
    problem.device_count = copy("query_count", &problem.count, sizeof problem.count);
    const size_t bytes = problem.workspace_bytes + GUARD;
    problem.workspace = copy("workspace", filled(bytes, POISON), bytes);
    forbid_gaps(shape);
}

static int run(const void *shape, int turn) {
    (void)turn;
    return run_kernels(shape) && judge();
}

static void draw_shape(void *of) {
    static int bounds[PARTITION_MOST_BUCKETS];
    const int large = smelt__emulator() == NULL;
    struct shape *const shape = of;
    int bound = 0;
    *shape = (struct shape){.name = shape->name,
                            .bounds = bounds,
                            .batches = 1 + below(3),
                            .tokens = 1 + below(large ? 20000 : 60),
                            .rows = below(6000),
                            .width = 1 + below(below(2) ? 40 : 600),
                            .past = below(4),
                            .padding = below(2) ? below(9) : 0,
                            .lengths = below(2),
                            .fill = (enum fill)below(FILLS),
                            .list = (enum list)below(LISTS),
                            .buckets = 1 + below(PARTITION_MOST_BUCKETS)};
    for (int i = 0; i < shape->buckets; i++)
        bounds[i] = bound += 1 + below(2 * shape->width / shape->buckets + 1);
}

ALONE_TEST("gpu_partition", batches, run,
           .specs = {"sparse_attn_partition:pass=count", "sparse_attn_partition:pass=place"},
           LARGE_SHAPES(large_shapes), .random_cases = 12)
