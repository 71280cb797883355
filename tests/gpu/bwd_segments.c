/*
 * The deterministic backward pass's lists by keys, and its sums, against a reference: starts and
 * entries number for number, sums bit for bit. Run by hand on a machine with a GPU, by `meson test`
 * on the emulator with smaller problems and several schedules.
 *
 *     gpu_bwd_segments [CASES [ARCH [NAME [lists]]]]    random cases beside the listed ones;
 * SMELT_TEST_SEED repeats a run. ARCH: on the emulator, that one alone; NAME: cases whose names
 * have this text; `lists`: without the sums, which take most of the time
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/random.h"
#include "bwd_lists_reference.h"
#include "codegen/families/sparse_attn_bwd.h"
#include "kernel_alone.h"
#include "ops/sparse_attn_segments.h"

enum {
    SCHEDULES = 3,
    DEFAULT_CASES = 10,
    POISON = 0xFF, /* of floats a NaN */
    WIDTHS = 2,
    MOST_FAILURES = 1,  /* after which no further case is run */
    FAR = 1 << 26,      /* groups, of whose lists there is no memory ahead of the first one */
    FAR_ROWS = 1 << 29, /* partial rows of which there is none, ahead of the first one */
    RANGE = SMELT__BWD_TURN_RANGE,
    PART = 384 /* groups, likewise: of the plan, which this program checks */
};

#define TURN "sparse_attn_bwd_lists:pass=turn"

static const int widths[WIDTHS] = {64, 576};

/* What the lists hold. */
enum fill {
    ANY,    /* any keys */
    FEW,    /* few keys, so that they stand often in each list */
    ONE,    /* the same key in every entry */
    ONCE,   /* each list's keys once */
    SHARED, /* any keys, and one that every list has */
    EMPTY,
    FILLS
};

struct shape {
    const char *name;
    int groups, first_group, key_stride, key_count;
    enum fill fill;
    int blocks; /* of the pass; 0: the launch's own */
    int key_rows, width /* number of widths[] */;
    int chunk; /* groups of a chunk; 0: all of them */
};

static const struct shape shapes[] = {
    {"one entry", 1, 0, 64, 1, ANY, 0, 1, 0, 0},
    {"any keys", 40, 3, 128, 1000, ANY, 0, 1, 0, 0},
    {"few keys", 30, 0, 128, 300, FEW, 1, 2, 0, 0},
    {"few keys, long lists", 20, 2, 192, 300, FEW, 3, 1, 0, 0},
    {"one key", 12, 0, 128, 100, ONE, 0, 3, 0, 0},
    {"a shared key", 600, 0, 64, 500, SHARED, 0, 1, 0, 0},
    {"a shared key, the only one", 3, 0, 64, 1, SHARED, 0, 1, 0, 0},
    {"as many entries as one team sums", 512, 0, 64, 500, SHARED, 0, 1, 0, 0},
    {"wide rows", 20, 0, 64, 60, FEW, 0, 2, 1, 0},
    {"wide rows, one key", 30, 0, 64, 60, ONE, 0, 1, 1, 0},
    {"long lists", 3, 0, 6400, 5000, ANY, 0, 1, 0, 0},
    {"many keys", 4, 0, 64, 20000, ANY, 0, 1, 0, 0},
    {"keys of whole ranges", 12, 0, 64, 3 * RANGE, ANY, 0, 1, 0, 0},
    {"a range and a key", 12, 0, 64, RANGE + 1, ANY, 2, 1, 0, 0},
    {"no entry", 5, 0, 64, 70, EMPTY, 0, 1, 0, 0},
    {"chunks", 37, 2, 64, 500, ANY, 0, 1, 0, 12},
    {"chunks of several ranges", 64, 0, 64, 1200, FEW, 2, 2, 0, 16},
    {"several ranges, keys once", 75, 0, 64, 600, ONCE, 2, 1, 0, 40},
    {"a chunk each", 9, 1, 64, 100, ANY, 0, 1, 0, 1},
    {"a part", PART, 0, 64, 90, ONCE, 0, 1, 0, 0},
    {"a part, keys named again", PART, 0, 64, 90, SHARED, 0, 1, 0, 0},
    {"several parts", 2 * PART + 5, 0, 64, 300, ONCE, 0, 1, 0, 0},
    {"several parts, keys named again", 2 * PART + 40, 0, 64, 300, SHARED, 1, 1, 0, PART + 7},
    {"lists past 2^32 entries", 21, FAR, 64, 100, ANY, 0, 1, 0, 8},
    {"chunks, a shared key", 1100, 0, 64, 100, SHARED, 0, 1, 0, 540},
};

/* Beyond the emulator's patience. */
static const struct shape large_shapes[] = {
    {"a chunk", 640, 640, 2048, 8192, ONCE, 0, 1, 1, 0},
    {"a chunk of many keys", 640, 0, 2048, 131072, ANY, 0, 1, 1, 0},
    {"a chunk of unions", 80, 80, 16384, 32768, ANY, 0, 1, 1, 0},
    {"a chunk, a shared key", 640, 0, 2048, 8192, SHARED, 0, 1, 1, 0},
    {"a round", 1500, 0, 2048, 8192, ONCE, 0, 1, 0, 339},
    {"a round of many keys", 900, 0, 2048, 131072, ANY, 0, 1, 0, 339},
    {"many short lists", 20000, 0, 64, 8192, ONCE, 0, 1, 0, 0},
};

struct problem {
    const struct shape *shape;
    struct sparse_attn_bwd_segments_params host, device;
    struct sparse_attn_bwd_sum_params host_sum, device_sum;
    struct smelt__segments_layout layout;
    int64_t missing;                          /* lists ahead of those that there are */
    int64_t lists, list_keys, partials, sums; /* how many of each there are */
    float *sums_before;
    int *far_entries; /* the device's entries for the sums: partial rows begin with FAR_ROWS */
    void *memory[16]; /* the device's */
    int memories;
};

struct test {
    smelt_context *context;
    const struct smelt__kernel *turn;
    const struct smelt__kernel *sum[WIDTHS];
    struct sums_reference plan[WIDTHS];
    struct random random;
    struct alone_counts counts;
    int without_sums;
};

/* ---- problems -------------------------------------------------------------------------------- */

/* Where an array would begin with so many ints ahead of it that are not there. */
static const int *begin_before(const int *array, int64_t ints) {
    return (const int *)((uintptr_t)array - (uintptr_t)ints * sizeof(int));
}

static int draw_key(struct random *random, const struct shape *shape, int place) {
    switch (shape->fill) {
    case FEW:
        return random_below(random, 5) * (shape->key_count / 5);
    case ONE:
        return shape->key_count / 2;
    case SHARED:
        return place == 0 || shape->key_count == 1 ? 0
                                                   : 1 + random_below(random, shape->key_count - 1);
    default:
        return random_below(random, shape->key_count);
    }
}

static int ascending(const void *a, const void *b) {
    return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

/* A sorted list: each key once, how many; then the others. */
static int split(int *keys, int count) {
    int *again = take((size_t)count * sizeof *again);
    int once = 0, more = 0;
    for (int i = 0; i < count; i++) {
        if (once > 0 && keys[once - 1] == keys[i])
            again[more++] = keys[i];
        else
            keys[once++] = keys[i];
    }
    memcpy(keys + once, again, (size_t)more * sizeof *again);
    free(again);
    return once;
}

static void fill_lists(struct random *random, struct problem *problem, int *counts, int *firsts,
                       int *keys) {
    const struct shape *shape = problem->shape;
    for (int64_t list = 0; list < problem->lists; list++) {
        int *const own = keys + list * shape->key_stride;
        const int full = random_below(random, 3) == 0;
        int count = shape->fill == EMPTY    ? 0
                    : full                  ? shape->key_stride
                    : shape->fill == SHARED ? 1 + random_below(random, shape->key_stride)
                                            : random_below(random, shape->key_stride + 1);
        for (int i = 0; i < count; i++)
            own[i] = draw_key(random, shape, i);
        qsort(own, (size_t)count, sizeof *own, ascending);
        firsts[list] = random_below(random, 4) || shape->fill == ONCE ? split(own, count) : 0;
        if (shape->fill == ONCE)
            count = firsts[list];
        for (int i = count; i < shape->key_stride; i++)
            own[i] = i < (count + 63) / 64 * 64 ? -1 : (int)random_next(random);
        counts[list] = count;
    }
}

/* A key all of whose rows are zeros, so that whatever is added besides is seen. */
static int is_zero(int64_t key) {
    return key % 7 == 3;
}

/* Partial rows up to the lists' ends; NaN behind them. */
static unsigned short *fill_partials(struct random *random, const struct problem *problem) {
    const struct shape *shape = problem->shape;
    const int dqk = widths[shape->width];
    unsigned short *partials = take((size_t)problem->partials * sizeof *partials);
    memset(partials, POISON, (size_t)problem->partials * sizeof *partials);
    for (int64_t group = 0; group < shape->groups; group++) {
        const int64_t row = (int64_t)shape->key_rows * dqk; /* of an entry */
        const int64_t list = shape->first_group + group;
        const int *const keys = problem->host.keys + list * shape->key_stride;
        unsigned short *const rows = partials + group * shape->key_stride * row;
        for (int64_t i = 0; i < problem->host.counts[list] * row; i++) /* 2^-20 up to 2^12 */
            rows[i] = is_zero(keys[i / row])
                          ? 0
                          : (unsigned short)((random_next(random) & 0x807f) |
                                             (unsigned)(107 + random_below(random, 32)) << 7);
    }
    return partials;
}

static void make_problem(struct random *random, const struct shape *shape,
                         struct problem *problem) {
    memset(problem, 0, sizeof *problem);
    problem->shape = shape;
    problem->missing = shape->first_group >= FAR ? shape->first_group : 0;
    problem->lists = shape->first_group + shape->groups - problem->missing;
    problem->list_keys = problem->lists * shape->key_stride;
    problem->sums = (int64_t)shape->key_count * widths[shape->width];
    problem->partials =
        (int64_t)shape->groups * shape->key_rows * shape->key_stride * widths[shape->width];
    const int chunk = shape->chunk ? shape->chunk : shape->groups;
    problem->layout =
        smelt__segments_layout(shape->groups, chunk, shape->key_stride, shape->key_count);
    int *counts = take((size_t)problem->lists * sizeof *counts);
    int *keys = take((size_t)problem->list_keys * sizeof *keys);
    int *firsts = take((size_t)problem->lists * sizeof *firsts);
    fill_lists(random, problem, counts, firsts, keys);
    struct sparse_attn_bwd_segments_params *host = &problem->host;
    *host = (struct sparse_attn_bwd_segments_params){
        .counts = begin_before(counts, problem->missing),
        .firsts = begin_before(firsts, problem->missing),
        .keys = begin_before(keys, problem->missing * shape->key_stride),
        .starts = take((size_t)problem->layout.starts * sizeof(int)),
        .entries = take((size_t)problem->layout.entries * sizeof(int)),
        .first_group = shape->first_group,
        .groups = shape->groups,
        .chunk = chunk,
        .key_stride = shape->key_stride,
        .key_count = shape->key_count,
        .chunks = (shape->groups + chunk - 1) / chunk,
    };
    memset(host->entries, POISON, (size_t)problem->layout.entries * sizeof(int));
    problem->host_sum = (struct sparse_attn_bwd_sum_params){
        .partials = fill_partials(random, problem),
        .starts = host->starts,
        .entries = host->entries,
        .sums = take((size_t)problem->sums * sizeof(float)),
        .key_count = shape->key_count,
        .key_stride = shape->key_stride,
        .key_rows = shape->key_rows,
    };
    for (int64_t i = 0; i < problem->sums; i++)
        problem->host_sum.sums[i] = is_zero(i / widths[shape->width])
                                        ? 0.0f
                                        : (float)random_below(random, 1 << 20) / 1024.0f;
    problem->sums_before = take((size_t)problem->sums * sizeof(float));
    memcpy(problem->sums_before, problem->host_sum.sums, (size_t)problem->sums * sizeof(float));
}

static const int *counts_of(const struct problem *problem) {
    return begin_before(problem->host.counts, -problem->missing);
}

static const int *firsts_of(const struct problem *problem) {
    return begin_before(problem->host.firsts, -problem->missing);
}

static const int *keys_of(const struct problem *problem) {
    return begin_before(problem->host.keys, -problem->missing * problem->shape->key_stride);
}

static void free_problem(struct test *test, struct problem *problem) {
    const void *host[] = {counts_of(problem),     firsts_of(problem),    keys_of(problem),
                          problem->host.starts,   problem->host.entries, problem->host_sum.partials,
                          problem->host_sum.sums, problem->sums_before};
    for (size_t i = 0; i < sizeof host / sizeof *host; i++)
        free((void *)(uintptr_t)host[i]);
    for (int i = 0; i < problem->memories; i++)
        smelt_device_free(test->context, problem->memory[i]);
}

/* ---- the device ------------------------------------------------------------------------------ */

static void *copy(struct test *test, struct problem *problem, const char *name, const void *host,
                  int64_t bytes) {
    void **device = &problem->memory[problem->memories++];
    if (!upload(test->context, name, host, (size_t)bytes, device))
        exit(1);
    return *device;
}

/* Memory of nothing in particular. */
static void *reserve(struct test *test, struct problem *problem, const char *name, int64_t ints) {
    const size_t bytes = (size_t)ints * sizeof(int);
    unsigned char *poison = take(bytes);
    memset(poison, POISON, bytes);
    void *device = copy(test, problem, name, poison, (int64_t)bytes);
    free(poison);
    return device;
}

/* Bytes of partial rows that are not there. */
static int64_t far_bytes(const struct problem *problem) {
    return (int64_t)FAR_ROWS * problem->shape->key_rows * 2 * widths[problem->shape->width];
}

/* The entries as the sums are given them, whose partial rows then lie past 2^32 bytes. */
static int move_entries(struct test *test, const struct problem *problem) {
    const size_t bytes = (size_t)problem->layout.entries * sizeof(int);
    int *entries = take(bytes);
    int good = works(smelt_device_download(test->context, entries, problem->device.entries, bytes),
                     "download");
    for (int64_t i = 0; i < problem->layout.entries && good; i++)
        entries[i] = (int)((unsigned)entries[i] + FAR_ROWS);
    good = good && works(smelt_device_upload(test->context, problem->far_entries, entries, bytes),
                         "upload");
    free(entries);
    return good;
}

static void place_problem(struct test *test, struct problem *problem) {
    struct sparse_attn_bwd_segments_params *device = &problem->device;
    struct sparse_attn_bwd_sum_params *sum = &problem->device_sum;
    *device = problem->host;
    *sum = problem->host_sum;
    device->counts = begin_before(
        copy(test, problem, "counts", counts_of(problem), problem->lists * 4), problem->missing);
    device->firsts = begin_before(
        copy(test, problem, "firsts", firsts_of(problem), problem->lists * 4), problem->missing);
    device->keys =
        begin_before(copy(test, problem, "keys", keys_of(problem), problem->list_keys * 4),
                     problem->missing * problem->shape->key_stride);
    device->starts = reserve(test, problem, "starts", problem->layout.starts);
    device->entries = reserve(test, problem, "entries", problem->layout.entries);
    sum->partials =
        copy(test, problem, "partials", problem->host_sum.partials, problem->partials * 2);
    sum->partials = (const void *)((uintptr_t)sum->partials - (uintptr_t)far_bytes(problem));
    sum->starts = device->starts;
    problem->far_entries = reserve(test, problem, "far entries", problem->layout.entries);
    sum->entries = problem->far_entries;
    sum->sums = reserve(test, problem, "sums", problem->sums);
}

/* Of a chunk. */
static struct sparse_attn_bwd_sum_params
sum_of(const struct problem *problem, const struct sparse_attn_bwd_sum_params *all, int chunk) {
    struct sparse_attn_bwd_sum_params sum = *all;
    const int64_t row = 2 * widths[problem->shape->width];
    sum.starts += smelt__segments_starts(chunk, problem->host.key_count);
    sum.partials = (const char *)sum.partials +
                   (int64_t)chunk * problem->host.chunk * sum.key_rows * sum.key_stride * row;
    return sum;
}

static int run_sums(struct test *test, const struct problem *problem, uint32_t blocks) {
    int good = 1;
    for (int chunk = 0; chunk < problem->host.chunks && good; chunk++) {
        struct sparse_attn_bwd_sum_params sum = sum_of(problem, &problem->device_sum, chunk);
        sum.overlaps = chunk % 2; /* behind a complete launch it waits for nothing */
        const struct smelt__launch launch = {.blocks = {blocks}, .params = &sum};
        good = works(
            smelt__kernel_launch(test->context, test->sum[problem->shape->width], &launch, NULL),
            "launch");
    }
    return good;
}

/* The pass by its own launch, or with fewer blocks, each of which then takes several ranges. */
static smelt_status launch_segments(const struct test *test, const struct problem *problem) {
    const struct smelt__launch few = {.blocks = {(uint32_t)problem->shape->blocks},
                                      .params = &problem->device};
    int pushed;
    if (problem->shape->blocks)
        return smelt__kernel_launch(test->context, test->turn, &few, NULL);
    smelt_status status = smelt__context_enter(test->context, &pushed);
    if (status)
        return status;
    struct sparse_attn_bwd_segments_params params = problem->device;
    params.chunks = 0; /* the launch's to set */
    status = smelt__segments_launch(test->context, test->turn, &params, NULL);
    smelt__context_leave(test->context, pushed);
    return status;
}

static int run_kernels(struct test *test, const struct problem *problem, uint32_t sum_blocks) {
    const size_t sums = (size_t)problem->sums * sizeof(float);
    return works(smelt_device_fill(test->context, problem->device.entries, POISON,
                                   (size_t)problem->layout.entries * sizeof(int)),
                 "fill") &&
           works(smelt_device_upload(test->context, problem->device_sum.sums, problem->sums_before,
                                     sums),
                 "upload") &&
           works(smelt_stream_synchronize(test->context, NULL), "synchronize") &&
           works(launch_segments(test, problem), "launch") &&
           works(smelt_stream_synchronize(test->context, NULL), "segments") &&
           (test->without_sums ||
            (move_entries(test, problem) && run_sums(test, problem, sum_blocks) &&
             works(smelt_stream_synchronize(test->context, NULL), "sums")));
}

/* ---- judging --------------------------------------------------------------------------------- */

static int same_ints(const char *what, const int *got, const int *wanted, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (got[i] != wanted[i]) {
            printf("    %s[%lld] is %d, not %d\n", what, (long long)i, got[i], wanted[i]);
            return 0;
        }
    return 1;
}

static int same_sums(const float *got, const float *wanted, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (memcmp(&got[i], &wanted[i], sizeof *got) != 0) {
            printf("    sums[%lld] is %.9g, not %.9g\n", (long long)i, (double)got[i],
                   (double)wanted[i]);
            return 0;
        }
    return 1;
}

static int judge(struct test *test, const struct problem *problem) {
    const struct smelt__segments_layout *layout = &problem->layout;
    const size_t starts_bytes = (size_t)layout->starts * sizeof(int);
    const size_t entries_bytes = (size_t)layout->entries * sizeof(int);
    const size_t sums_bytes = (size_t)problem->sums * sizeof(float);
    int *starts = take(starts_bytes), *entries = take(entries_bytes);
    float *sums = take(sums_bytes);
    int good =
        works(smelt_device_download(test->context, starts, problem->device.starts, starts_bytes),
              "download") &&
        works(smelt_device_download(test->context, entries, problem->device.entries, entries_bytes),
              "download") &&
        works(smelt_device_download(test->context, sums, problem->device_sum.sums, sums_bytes),
              "download") &&
        same_ints("starts", starts, problem->host.starts, layout->starts);
    good = good && same_ints("entries", entries, problem->host.entries, layout->entries) &&
           (test->without_sums || same_sums(sums, problem->host_sum.sums, problem->sums));
    free(starts);
    free(entries);
    free(sums);
    return good;
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void check(struct test *test, const struct shape *shape) {
    if (test->counts.failures == MOST_FAILURES || !strstr(shape->name, test->counts.only))
        return;
    struct problem problem;
    const uint64_t seed = test->random.state;
    const char *const arch = smelt_context_arch(test->context);
    make_problem(&test->random, shape, &problem);
    reference_segments(&problem.host);
    for (int chunk = 0; chunk < problem.host.chunks && !test->without_sums; chunk++) {
        const struct sparse_attn_bwd_sum_params sum = sum_of(&problem, &problem.host_sum, chunk);
        reference_sums(&sum, test->plan[shape->width]);
    }
    place_problem(test, &problem);
    const int schedules = schedules_to_run(SCHEDULES, 2);
    const uint32_t blocks = smelt__emulator() ? 7 : 1000;
    int good = 1;
    for (int i = 0; i < schedules && good; i++) {
        smelt__emulator_configure(arch, smelt__schedule_at(seed, i + test->counts.cases % 2), 0);
        good = run_kernels(test, &problem, i == 1 ? 2 : blocks) && judge(test, &problem);
    }
    test->counts.cases++;
    test->counts.failures += !good;
    if (!good)
        printf(
            "FAILED %s on %s: %d groups from %d on in chunks of %d, %d blocks, key_stride %d, %d "
            "keys, fill %d, %d rows an entry, width %d; random state %llu\n",
            shape->name, arch, shape->groups, shape->first_group, problem.host.chunk, shape->blocks,
            shape->key_stride, shape->key_count, (int)shape->fill, shape->key_rows,
            widths[shape->width], (unsigned long long)seed);
    free_problem(test, &problem);
}

static struct shape draw_shape(struct random *random) {
    return (struct shape){.name = "a random shape",
                          .groups = 1 + random_below(random, 40),
                          .first_group = random_below(random, 3),
                          .key_stride = 64 * (1 + random_below(random, 4)),
                          .key_count =
                              1 + random_below(random, random_below(random, 2) ? 50 : 3000),
                          .fill = (enum fill)random_below(random, FILLS),
                          .blocks = random_below(random, 2) ? 1 + random_below(random, 9) : 0,
                          .key_rows = 1 + random_below(random, 3),
                          .width = random_below(random, 8) == 0,
                          .chunk = random_below(random, 2) ? 1 + random_below(random, 20) : 0};
}

/* The sum's kernels, and what the reference must know of their plans. */
static int get_sums(struct test *test) {
    for (int i = 0; i < WIDTHS; i++) {
        struct smelt__plan plan;
        char spec[64];
        int found;
        snprintf(spec, sizeof spec, "sparse_attn_bwd_sum:dqk=%d", widths[i]);
        if (!get_kernel(test->context, spec, &test->sum[i]) ||
            !works(smelt__plan_from_text(spec, smelt_context_arch(test->context), &plan), "plan"))
            return 0;
        test->plan[i] =
            (struct sums_reference){.dqk = widths[i],
                                    .most_alone = smelt__plan_constant(&plan, "MOST_ALONE", &found),
                                    .run = smelt__plan_constant(&plan, "RUN", &found)};
    }
    return 1;
}

/* The plan has the range and the parts that cases are made for. */
static int has_parts(const struct test *test) {
    struct smelt__plan plan;
    int found;
    return works(smelt__plan_from_text(TURN, smelt_context_arch(test->context), &plan), "plan") &&
           smelt__plan_constant(&plan, "RANGE", &found) == RANGE &&
           smelt__plan_constant(&plan, "PART", &found) == PART;
}

static int run(void *user, int listed, int random_cases) {
    struct test *const test = user;
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    options.kind = SMELT_CONTEXT_DEVICE;
    if (!works(smelt_context_create(&test->context, &options), "context"))
        return 0;
    int good = get_kernel(test->context, TURN, &test->turn) && has_parts(test) && get_sums(test);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes && listed && good; i++)
        check(test, &shapes[i]);
    for (size_t i = 0; i < sizeof large_shapes / sizeof *large_shapes && good && !smelt__emulator();
         i++)
        check(test, &large_shapes[i]);
    for (int i = 0; i < random_cases && good; i++) {
        const struct shape shape = draw_shape(&test->random);
        check(test, &shape);
    }
    smelt_context_destroy(&test->context);
    return good;
}

int main(int argc, char **argv) {
    struct test test = {.random = random_begin("gpu_bwd_segments"),
                        .without_sums = argc > 4 && strcmp(argv[4], "lists") == 0};
    return run_alone(argc, argv, DEFAULT_CASES, run, &test, &test.counts);
}
