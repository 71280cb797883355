/*
 * The partition's two kernels against the reference, entry for entry: ranges, lists and extents.
 * Run by hand on a machine with a GPU, by `meson test` on the emulator with smaller problems and
 * several schedules. Calls the library's internal functions: no operator shows its lists.
 *
 *     gpu_partition [CASES [ARCH]]    random cases beside the listed ones; SMELT_TEST_SEED repeats
 * a run. ARCH: on the emulator, that one alone
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/random.h"
#include "kernel_alone.h"
#include "ops/sparse_attn_partition.h"
#include "reference/sparse_attn_partition.h"

enum {
    SCHEDULES = 3,
    DEFAULT_CASES = 12,
    GUARD = 64 /* bytes past the workspace */,
    POISON = 0xA5,
    FAR = 1 << 20,
    MOST_FAILURES = 2 /* after which no further case is run */
};

/* Which slots of a row are valid. */
enum fill { SCATTERED, ALL, NONE, PREFIX, FIRST, LAST, AT_BOUNDS, FILLS };
enum list { ALL_QUERIES, LISTED, LISTED_AND_COUNTED, LISTS };

/* One problem. */
struct shape {
    const char *name;
    int batches, tokens, rows, width;
    int past;    /* ints that the first row starts past a multiple of 16 bytes */
    int padding; /* ints between two rows; FAR or more: nothing lies there */
    int lengths; /* 1: topk_length is given */
    enum fill fill;
    enum list list;
    int buckets;
    const int *bounds;
    int run; /* entries of a run, instead of the rule's; 0: the rule's */
};

static const int models[] = {256, 512, 1024, 1536, 2048};
static const int small[] = {1, 2, 3, 4, 5, 6, 7, 8, 12};
static const int few[] = {10, 20, 40};
static const int halves[] = {32, 64, 128};
static const int from_0[] = {0, 64};
static const int widths[] = {64, 128, 200};

/* Listed cases: real use and the edges. */
static const struct shape shapes[] = {
    {"one slot", 1, 1, 1, 1, 0, 0, 0, ALL, ALL_QUERIES, 1, small, 0},
    {"no rows", 1, 40, 0, 33, 0, 0, 0, SCATTERED, ALL_QUERIES, 2, few, 0},
    {"topk 2048", 1, 20, 5000, 2048, 0, 0, 0, AT_BOUNDS, ALL_QUERIES, 5, models, 0},
    {"prefixes", 2, 150, 400, 128, 0, 0, 0, PREFIX, ALL_QUERIES, 3, halves, 0},
    {"nothing valid", 1, 70, 100, 64, 0, 0, 0, NONE, ALL_QUERIES, 2, few, 0},
    {"all valid", 1, 70, 100, 64, 0, 0, 0, ALL, ALL_QUERIES, 2, few, 0},
    {"last slot", 3, 30, 100, 67, 0, 0, 0, LAST, ALL_QUERIES, 2, from_0, 0},
    {"first slot", 3, 30, 100, 67, 1, 0, 0, FIRST, ALL_QUERIES, 2, from_0, 0},
    {"rows at 4 bytes", 1, 60, 300, 97, 1, 2, 0, SCATTERED, ALL_QUERIES, 3, halves, 0},
    {"rows at 12 bytes", 1, 60, 300, 3, 3, 0, 0, SCATTERED, ALL_QUERIES, 3, small, 0},
    {"lengths", 2, 90, 300, 200, 2, 5, 1, ALL, ALL_QUERIES, 3, widths, 0},
    {"nine buckets", 1, 600, 50, 12, 0, 0, 0, SCATTERED, ALL_QUERIES, 9, small, 0},
    {"several blocks", 1, 2500, 50, 8, 0, 0, 0, SCATTERED, ALL_QUERIES, 5, small, 0},
    {"a query list", 2, 90, 300, 40, 0, 0, 1, SCATTERED, LISTED, 3, few, 0},
    {"a counted list", 2, 90, 300, 40, 0, 4, 0, SCATTERED, LISTED_AND_COUNTED, 3, few, 0},
    {"offsets beyond 2^31", 2, 3, 300, 100, 0, 600000000, 0, PREFIX, ALL_QUERIES, 2, small, 0},
    {"long runs", 1, 5000, 50, 4, 0, 0, 0, SCATTERED, ALL_QUERIES, 3, small, 2048},
};

/* Beyond the emulator's patience. */
static const struct shape large_shapes[] = {
    {"8192 queries", 1, 8192, 8192, 2048, 0, 0, 0, AT_BOUNDS, ALL_QUERIES, 5, models, 0},
    {"rows at 8 bytes", 2, 3000, 9000, 2047, 2, 1, 1, SCATTERED, ALL_QUERIES, 5, models, 0},
    {"three million queries", 1, 3000000, 50, 8, 0, 0, 0, SCATTERED, ALL_QUERIES, 5, small, 0},
    {"a million listed", 4, 200000, 90, 65, 1, 0, 1, SCATTERED, LISTED_AND_COUNTED, 3, few, 0},
};

/* A problem's arrays, on the host, and where they lie on the device. */
struct problem {
    const struct shape *shape;
    int64_t queries, capacity; /* of the call; of the list, or queries */
    int32_t *indices;          /* rows without gaps */
    int32_t *lengths, *list, count;
    size_t index_ints; /* of the device's rows, with their gaps */
    void *device_indices, *device_lengths, *device_list, *device_count, *workspace;
    size_t workspace_bytes;
};

struct test {
    smelt_context *context;
    struct smelt__partition_kernels kernels;
    struct random random;
    struct alone_counts counts;
};

/* ---- problems -------------------------------------------------------------------------------- */

/* The smallest legal and illegal indices and their neighbours, and others. */
static int32_t draw_index(struct random *random, int rows, int valid) {
    const int32_t illegal[] = {-1, rows, INT32_MIN, INT32_MAX, rows < INT_MAX ? rows + 1 : rows};
    if (!valid || rows == 0)
        return illegal[random_below(random, sizeof illegal / sizeof *illegal)];
    switch (random_below(random, 4)) {
    case 0:
        return 0;
    case 1:
        return rows - 1;
    default:
        return random_below(random, rows);
    }
}

static int is_valid_slot(struct random *random, const struct shape *shape, int64_t query, int slot,
                         int chance) {
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
        return random_below(random, 100) < chance;
    default:
        return 0;
    }
}

static void fill_row(struct random *random, const struct shape *shape, int64_t query,
                     int32_t *row) {
    const int chance = random_below(random, 101);
    for (int slot = 0; slot < shape->width; slot++)
        row[slot] =
            draw_index(random, shape->rows, is_valid_slot(random, shape, query, slot, chance));
}

static void fill_list(struct random *random, struct problem *problem) {
    const int32_t outside[] = {-1, (int32_t)problem->queries, INT32_MIN, INT32_MAX};
    for (int64_t i = 0; i < problem->capacity; i++)
        problem->list[i] = random_below(random, 8) == 0
                               ? outside[random_below(random, 4)]
                               : random_below(random, (int)problem->queries);
    const int64_t counts[] = {problem->capacity, problem->capacity * 2 / 3, 0, INT32_MAX, -5};
    problem->count = (int32_t)counts[random_below(random, 5)];
}

static int64_t row_stride(const struct shape *shape) {
    return shape->width + shape->padding;
}

static void make_problem(struct random *random, const struct shape *shape,
                         struct problem *problem) {
    memset(problem, 0, sizeof *problem);
    problem->shape = shape;
    problem->queries = (int64_t)shape->batches * shape->tokens;
    problem->capacity = shape->list == ALL_QUERIES ? problem->queries : problem->queries * 5 / 4;
    problem->index_ints = (size_t)(shape->past + problem->queries * row_stride(shape));
    problem->indices = take((size_t)(problem->queries * shape->width) * sizeof(int32_t));
    problem->lengths = take((size_t)problem->queries * sizeof(int32_t));
    problem->list = take((size_t)problem->capacity * sizeof(int32_t));
    for (int64_t query = 0; query < problem->queries; query++) {
        const int odd[] = {-7, 0, INT32_MAX};
        fill_row(random, shape, query, problem->indices + query * shape->width);
        problem->lengths[query] = random_below(random, 4) == 0
                                      ? odd[random_below(random, 3)]
                                      : random_below(random, shape->width + 2);
    }
    fill_list(random, problem);
    const struct smelt__partition_layout layout =
        smelt__partition_layout(problem->capacity, shape->buckets);
    problem->workspace_bytes = layout.bytes;
}

static void free_problem(struct test *test, struct problem *problem) {
    free(problem->indices);
    free(problem->lengths);
    free(problem->list);
    smelt_device_free(test->context, problem->device_indices);
    smelt_device_free(test->context, problem->device_lengths);
    smelt_device_free(test->context, problem->device_list);
    smelt_device_free(test->context, problem->device_count);
    smelt_device_free(test->context, problem->workspace);
}

/* ---- the device ------------------------------------------------------------------------------ */

/* Rows far from each other: each by itself into memory that holds nothing else. */
static int upload_far_rows(struct test *test, struct problem *problem) {
    const struct emu_interface *emulator = smelt__emulator();
    const struct shape *shape = problem->shape;
    const size_t bytes = problem->index_ints * sizeof(int32_t);
    if (emulator)
        problem->device_indices = (void *)(uintptr_t)emulator->reserve(bytes);
    else if (!works(smelt_device_alloc(test->context, bytes, &problem->device_indices), "alloc"))
        return 0;
    for (int64_t query = 0; query < problem->queries; query++) {
        int32_t *const row =
            (int32_t *)problem->device_indices + shape->past + query * row_stride(shape);
        if (!works(smelt_device_upload(test->context, row, problem->indices + query * shape->width,
                                       (size_t)shape->width * sizeof(int32_t)),
                   "upload"))
            return 0;
    }
    return 1;
}

/* Gaps hold a valid index, so that reading one shows. */
static int upload_indices(struct test *test, struct problem *problem) {
    const struct shape *shape = problem->shape;
    const size_t bytes = problem->index_ints * sizeof(int32_t);
    if (shape->padding >= FAR)
        return upload_far_rows(test, problem);
    int32_t *staged = take(bytes);
    memset(staged, 0, bytes);
    for (int64_t query = 0; query < problem->queries; query++)
        memcpy(staged + shape->past + query * row_stride(shape),
               problem->indices + query * shape->width, (size_t)shape->width * sizeof(int32_t));
    const int good = upload(test->context, "indices", staged, bytes, &problem->device_indices);
    free(staged);
    return good;
}

/* On the emulator, reads of what is no slot of a row are reports. */
static void forbid_gaps(const struct problem *problem) {
    const struct emu_interface *emulator = smelt__emulator();
    const struct shape *shape = problem->shape;
    const uint64_t base = (uint64_t)(uintptr_t)problem->device_indices;
    if (!emulator)
        return;
    if (shape->past)
        emulator->forbid(base, (size_t)shape->past * sizeof(int32_t));
    for (int64_t query = 0; query < problem->queries; query++) {
        int64_t slots = shape->width;
        if (shape->lengths && problem->lengths[query] < slots)
            slots = problem->lengths[query] > 0 ? problem->lengths[query] : 0;
        const int64_t end = shape->past + query * row_stride(shape) + slots;
        if (row_stride(shape) > slots)
            emulator->forbid(base + (uint64_t)end * sizeof(int32_t),
                             (size_t)(row_stride(shape) - slots) * sizeof(int32_t));
    }
}

static int place_problem(struct test *test, struct problem *problem) {
    if (!upload_indices(test, problem) ||
        !upload(test->context, "topk_length", problem->lengths,
                (size_t)problem->queries * sizeof(int32_t), &problem->device_lengths) ||
        !upload(test->context, "queries", problem->list,
                (size_t)problem->capacity * sizeof(int32_t), &problem->device_list) ||
        !upload(test->context, "query_count", &problem->count, sizeof problem->count,
                &problem->device_count) ||
        !works(smelt_device_alloc(test->context, problem->workspace_bytes + GUARD,
                                  &problem->workspace),
               "alloc"))
        return 0;
    if (smelt__emulator()) {
        smelt__emulator()->name((uint64_t)(uintptr_t)problem->workspace, "workspace");
        smelt__emulator()->forbid(
            (uint64_t)(uintptr_t)problem->workspace + problem->workspace_bytes, GUARD);
    }
    forbid_gaps(problem);
    return 1;
}

/* What the forward's packing would hand on. */
static struct work_params work_params(const struct problem *problem) {
    const struct shape *shape = problem->shape;
    return (struct work_params){
        .indices = (const int *)problem->device_indices + shape->past,
        .topk_length = shape->lengths ? problem->device_lengths : NULL,
        .queries = shape->list != ALL_QUERIES ? problem->device_list : NULL,
        .query_count = shape->list == LISTED_AND_COUNTED ? problem->device_count : NULL,
        .indices_batch_stride = shape->tokens * row_stride(shape),
        .indices_token_stride = row_stride(shape),
        .topk_length_batch_stride = shape->tokens,
        .topk_length_token_stride = 1,
        .batches = shape->batches,
        .tokens = shape->tokens,
        .rows = shape->rows,
        .width = shape->width,
        .query_capacity = (int)problem->capacity,
    };
}

/* Poisons the workspace, runs, and hands out its bytes, GUARD more of them. */
static int run_kernels(struct test *test, const struct problem *problem, unsigned char *bytes) {
    const struct shape *shape = problem->shape;
    const struct work_params work = work_params(problem);
    struct sparse_attn_partition_params params =
        smelt__partition_params(&work, shape->bounds, shape->buckets, problem->workspace);
    const size_t all = problem->workspace_bytes + GUARD;
    if (shape->run) {
        params.run = shape->run;
        params.runs = (int)((problem->capacity + shape->run - 1) / shape->run);
        params.row_lanes = 4;
        params.runs_at_once = 4;
    }
    return works(smelt_device_fill(test->context, problem->workspace, POISON, all), "fill") &&
           works(smelt_stream_synchronize(test->context, NULL), "synchronize") &&
           works(smelt__partition_launch(test->context, &test->kernels, &params, NULL), "launch") &&
           works(smelt_stream_synchronize(test->context, NULL), "synchronize") &&
           works(smelt_device_download(test->context, bytes, problem->workspace, all), "download");
}

/* ---- judging --------------------------------------------------------------------------------- */

static int same(const char *what, const int32_t *got, const int32_t *wanted, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (got[i] != wanted[i]) {
            printf("    %s[%lld] is %d, not %d\n", what, (long long)i, got[i], wanted[i]);
            return 0;
        }
    return 1;
}

static int judge(const struct problem *problem, const unsigned char *bytes) {
    const struct shape *shape = problem->shape;
    const struct smelt__partition_layout layout =
        smelt__partition_layout(problem->capacity, shape->buckets);
    smelt_sparse_attn_args args = SMELT_SPARSE_ATTN_ARGS_INIT;
    const struct work_params work = work_params(problem);
    args.batches = shape->batches;
    args.tokens = shape->tokens;
    args.rows = shape->rows;
    args.width = shape->width;
    args.indices.data = problem->indices;
    args.indices.strides[0] = (int64_t)shape->tokens * shape->width;
    args.indices.strides[1] = shape->width;
    args.topk_length.data = shape->lengths ? problem->lengths : NULL;
    args.topk_length.strides[0] = work.topk_length_batch_stride;
    args.topk_length.strides[1] = work.topk_length_token_stride;
    args.queries.data = shape->list != ALL_QUERIES ? problem->list : NULL;
    args.query_count.data = shape->list == LISTED_AND_COUNTED ? &problem->count : NULL;
    args.query_capacity = shape->list != ALL_QUERIES ? problem->capacity : 0;
    const size_t list_bytes = (size_t)problem->capacity * sizeof(int32_t);
    int32_t ranges[2 * PARTITION_MOST_BUCKETS];
    struct smelt__partition_lists wanted = {ranges, take(list_bytes), take(list_bytes)};
    const int64_t listed =
        smelt__partition_reference(&args, shape->bounds, shape->buckets, &wanted);
    int good =
        same("ranges", (const int32_t *)(const void *)(bytes + layout.ranges), ranges,
             2 * shape->buckets) &&
        same("list", (const int32_t *)(const void *)(bytes + layout.list), wanted.list, listed) &&
        same("extents", (const int32_t *)(const void *)(bytes + layout.extents), wanted.extents,
             listed);
    for (int i = 0; i < GUARD && good; i++)
        if (bytes[layout.bytes + (size_t)i] != POISON) {
            printf("    wrote %d bytes past the workspace\n", i);
            good = 0;
        }
    free(wanted.list);
    free(wanted.extents);
    return good;
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void check(struct test *test, const struct shape *shape) {
    if (test->counts.failures == MOST_FAILURES)
        return;
    struct problem problem;
    const uint64_t seed = test->random.state;
    const char *const arch = smelt_context_arch(test->context);
    make_problem(&test->random, shape, &problem);
    unsigned char *bytes = take(problem.workspace_bytes + GUARD);
    int good = place_problem(test, &problem);
    const int schedules = schedules_to_run(SCHEDULES, 1);
    for (int i = 0; i < schedules && good; i++) {
        smelt__emulator_configure(arch, smelt__schedule_at(seed, i + test->counts.cases % 2), 0);
        good = run_kernels(test, &problem, bytes) && judge(&problem, bytes);
    }
    test->counts.cases++;
    test->counts.failures += !good;
    if (!good)
        printf("FAILED %s on %s: %d x %d queries, %d rows, width %d + %d, past %d, lengths %d, "
               "fill %d, list %d, %d buckets; random state %llu\n",
               shape->name, arch, shape->batches, shape->tokens, shape->rows, shape->width,
               shape->padding, shape->past, shape->lengths, (int)shape->fill, (int)shape->list,
               shape->buckets, (unsigned long long)seed);
    free(bytes);
    free_problem(test, &problem);
}

/* Its bounds are in `bounds`. */
static struct shape draw_shape(struct random *random, int bounds[PARTITION_MOST_BUCKETS]) {
    const int large = smelt__emulator() == NULL;
    struct shape shape = {.name = "a random shape",
                          .batches = 1 + random_below(random, 3),
                          .tokens = 1 + random_below(random, large ? 20000 : 60),
                          .rows = random_below(random, 6000),
                          .width = 1 + random_below(random, random_below(random, 2) ? 40 : 600),
                          .past = random_below(random, 4),
                          .padding = random_below(random, 2) ? random_below(random, 9) : 0,
                          .lengths = random_below(random, 2),
                          .fill = (enum fill)random_below(random, FILLS),
                          .list = (enum list)random_below(random, LISTS),
                          .buckets = 1 + random_below(random, PARTITION_MOST_BUCKETS),
                          .bounds = bounds};
    int bound = 0;
    for (int i = 0; i < shape.buckets; i++)
        bounds[i] = bound += 1 + random_below(random, 2 * shape.width / shape.buckets + 1);
    return shape;
}

static int run(void *user, int listed, int random_cases) {
    struct test *const test = user;
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    options.kind = SMELT_CONTEXT_DEVICE;
    if (!works(smelt_context_create(&test->context, &options), "context"))
        return 0;
    int good =
        get_kernel(test->context, "sparse_attn_partition:pass=count", &test->kernels.count) &&
        get_kernel(test->context, "sparse_attn_partition:pass=place", &test->kernels.place);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes && listed && good; i++)
        check(test, &shapes[i]);
    for (size_t i = 0; i < sizeof large_shapes / sizeof *large_shapes && good && !smelt__emulator();
         i++)
        check(test, &large_shapes[i]);
    for (int i = 0; i < random_cases && good; i++) {
        int bounds[PARTITION_MOST_BUCKETS];
        const struct shape shape = draw_shape(&test->random, bounds);
        check(test, &shape);
    }
    smelt_context_destroy(&test->context);
    return good;
}

int main(int argc, char **argv) {
    struct test test = {.random = random_begin("gpu_partition")};
    return run_alone(argc, argv, DEFAULT_CASES, run, &test, &test.counts);
}
