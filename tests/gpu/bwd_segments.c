/*
 * Compares the deterministic backward pass's transposed lists and sums with a reference: starts and
 * entries exactly, sums bit for bit. Arguments: kernel_alone.h; a fourth one, `lists`, omits the
 * sums, which take most of the time.
 */
#include "kernel_alone.h"

#include "bwd_lists_reference.h"
#include "codegen/families/sparse_attn_bwd.h"
#include "ops/sparse_attn_segments.h"

enum {
    POISON = 0xFF, /* NaN in floats */
    WIDTHS = 2,
    FAR = 1 << 26,      /* preceding groups, whose lists have no memory */
    FAR_ROWS = 1 << 29, /* preceding partial rows, which have no memory */
    RANGE = SMELT__BWD_TRANSPOSE_RANGE,
    PART = 384 /* groups; as in the plan, which this program checks */
};

#define TRANSPOSE "sparse_attn_bwd_lists:pass=transpose"
#define SUMS "sparse_attn_bwd_sum:dqk=64"
#define WIDE_SUMS "sparse_attn_bwd_sum:dqk=576"

static const int widths[WIDTHS] = {64, 576};
static const char *const sum_specs[WIDTHS] = {SUMS, WIDE_SUMS};

/* Contents of the lists. */
enum fill {
    ANY,    /* any keys */
    FEW,    /* few keys, which each list repeats */
    ONE,    /* the same key in every entry */
    ONCE,   /* each list's keys once */
    SHARED, /* any keys, and one that is in every list */
    EMPTY,
    FILLS
};

struct shape {
    const char *name;
    int groups, first_group, key_stride, key_count;
    enum fill fill;
    int blocks; /* of the pass; 0: the launch determines it */
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

/* Too slow on the emulator. */
static const struct shape large_shapes[] = {
    {"a chunk", 640, 640, 2048, 8192, ONCE, 0, 1, 1, 0},
    {"a chunk of many keys", 640, 0, 2048, 131072, ANY, 0, 1, 1, 0},
    {"a chunk of unions", 80, 80, 16384, 32768, ANY, 0, 1, 1, 0},
    {"a chunk, a shared key", 640, 0, 2048, 8192, SHARED, 0, 1, 1, 0},
    {"a round", 1500, 0, 2048, 8192, ONCE, 0, 1, 0, 339},
    {"a round of many keys", 900, 0, 2048, 131072, ANY, 0, 1, 0, 339},
    {"many short lists", 20000, 0, 64, 8192, ONCE, 0, 1, 0, 0},
};

static struct sums_reference sum_plans[WIDTHS];
static int without_sums;

/* Arguments with the host's pointers and with the device's. */
static struct problem {
    const struct shape *shape;
    struct sparse_attn_bwd_segments_params host, device;
    struct sparse_attn_bwd_sum_params host_sum, device_sum;
    struct smelt__segments_layout layout;
    int64_t missing;                         /* preceding lists without memory */
    size_t lists, list_keys, partials, sums; /* the number of each */
    int *counts, *firsts, *keys;             /* of the existing lists */
    float *sums_before;
    int *far_entries; /* entries for the sums, where partial rows begin at FAR_ROWS */
} problem;

/* ---- problems -------------------------------------------------------------------------------- */

/* The beginning of an array if so many ints without memory preceded it. */
static const int *begin_before(const int *array, int64_t ints) {
    return (const int *)((uintptr_t)array - (uintptr_t)ints * sizeof(int));
}

static int draw_key(const struct shape *shape, int place) {
    switch (shape->fill) {
    case FEW:
        return below(5) * (shape->key_count / 5);
    case ONE:
        return shape->key_count / 2;
    case SHARED:
        return place == 0 || shape->key_count == 1 ? 0 : 1 + below(shape->key_count - 1);
    default:
        return below(shape->key_count);
    }
}

static int ascending(const void *a, const void *b) {
    return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

/* Splits a sorted list into its distinct keys, whose number it returns, and repeated ones. `again`
 * has space for all entries. */
static int split(int *keys, int count, int *again) {
    int once = 0, more = 0;
    for (int i = 0; i < count; i++) {
        if (once > 0 && keys[once - 1] == keys[i])
            again[more++] = keys[i];
        else
            keys[once++] = keys[i];
    }
    memcpy(keys + once, again, (size_t)more * sizeof *again);
    return once;
}

static void fill_lists(const struct shape *shape) {
    int *const again = take((size_t)shape->key_stride * sizeof *again);
    for (size_t list = 0; list < problem.lists; list++) {
        int *const own = problem.keys + list * (size_t)shape->key_stride;
        const int full = below(3) == 0;
        int count = shape->fill == EMPTY    ? 0
                    : full                  ? shape->key_stride
                    : shape->fill == SHARED ? 1 + below(shape->key_stride)
                                            : below(shape->key_stride + 1);
        for (int i = 0; i < count; i++)
            own[i] = draw_key(shape, i);
        qsort(own, (size_t)count, sizeof *own, ascending);
        problem.firsts[list] = below(4) || shape->fill == ONCE ? split(own, count, again) : 0;
        if (shape->fill == ONCE)
            count = problem.firsts[list];
        for (int i = count; i < shape->key_stride; i++)
            own[i] = i < (count + 63) / 64 * 64 ? -1 : (int)random_next(&alone.random);
        problem.counts[list] = count;
    }
}

/* A key whose rows are all zeros, to detect wrong additions. */
static int is_zero(int64_t key) {
    return key % 7 == 3;
}

/* Partial rows up to the lists' ends; then NaN. */
static unsigned short *fill_partials(const struct shape *shape) {
    const int dqk = widths[shape->width];
    unsigned short *partials = filled(problem.partials * sizeof *partials, POISON);
    for (int64_t group = 0; group < shape->groups; group++) {
        const int64_t row = (int64_t)shape->key_rows * dqk; /* of an entry */
        const int64_t list = shape->first_group + group;
        const int *const keys = problem.host.keys + list * shape->key_stride;
        unsigned short *const rows = partials + group * shape->key_stride * row;
        for (int64_t i = 0; i < problem.host.counts[list] * row; i++) /* 2^-20 up to 2^12 */
            rows[i] = is_zero(keys[i / row])
                          ? 0
                          : (unsigned short)((random_next(&alone.random) & 0x807f) |
                                             (unsigned)(107 + below(32)) << 7);
    }
    return partials;
}

static void make_problem(const struct shape *shape) {
    const size_t stride = (size_t)shape->key_stride, groups = (size_t)shape->groups;
    const int chunk = shape->chunk ? shape->chunk : shape->groups;
    problem = (struct problem){.shape = shape};
    problem.missing = shape->first_group >= FAR ? shape->first_group : 0;
    problem.lists = (size_t)(shape->first_group + shape->groups - problem.missing);
    problem.list_keys = problem.lists * stride;
    problem.sums = (size_t)shape->key_count * (size_t)widths[shape->width];
    problem.partials = groups * (size_t)shape->key_rows * stride * (size_t)widths[shape->width];
    problem.layout =
        smelt__segments_layout(shape->groups, chunk, shape->key_stride, shape->key_count);
    problem.counts = take(problem.lists * sizeof(int));
    problem.firsts = take(problem.lists * sizeof(int));
    problem.keys = take(problem.list_keys * sizeof(int));
    fill_lists(shape);
    struct sparse_attn_bwd_segments_params *host = &problem.host;
    *host = (struct sparse_attn_bwd_segments_params){
        .counts = begin_before(problem.counts, problem.missing),
        .firsts = begin_before(problem.firsts, problem.missing),
        .keys = begin_before(problem.keys, problem.missing * shape->key_stride),
        .starts = take((size_t)problem.layout.starts * sizeof(int)),
        .entries = filled((size_t)problem.layout.entries * sizeof(int), POISON),
        .first_group = shape->first_group,
        .groups = shape->groups,
        .chunk = chunk,
        .key_stride = shape->key_stride,
        .key_count = shape->key_count,
        .chunks = (shape->groups + chunk - 1) / chunk,
    };
    problem.host_sum = (struct sparse_attn_bwd_sum_params){
        .partials = fill_partials(shape),
        .starts = host->starts,
        .entries = host->entries,
        .sums = take(problem.sums * sizeof(float)),
        .key_count = shape->key_count,
        .key_stride = shape->key_stride,
        .key_rows = shape->key_rows,
    };
    for (size_t i = 0; i < problem.sums; i++)
        problem.host_sum.sums[i] =
            is_zero((int64_t)i / widths[shape->width]) ? 0.0f : (float)below(1 << 20) / 1024.0f;
    problem.sums_before = take(problem.sums * sizeof(float));
    memcpy(problem.sums_before, problem.host_sum.sums, problem.sums * sizeof(float));
}

/* ---- the device ------------------------------------------------------------------------------ */

/* Memory with arbitrary contents. */
static void *reserve(const char *name, int64_t ints) {
    const size_t bytes = (size_t)ints * sizeof(int);
    return copy(name, filled(bytes, POISON), bytes);
}

/* Moves the sums' entries so that their partial rows are beyond 2^32 bytes. */
static int move_entries(void) {
    const size_t bytes = (size_t)problem.layout.entries * sizeof(int);
    int *const entries = fetch(problem.device.entries, packed(bytes));
    for (int64_t i = 0; i < problem.layout.entries; i++)
        entries[i] = (int)((unsigned)entries[i] + FAR_ROWS);
    return upload(problem.far_entries, entries, bytes);
}

static void place_problem(const struct shape *shape) {
    struct sparse_attn_bwd_segments_params *device = &problem.device;
    struct sparse_attn_bwd_sum_params *sum = &problem.device_sum;
    const uintptr_t far_bytes =
        (uintptr_t)FAR_ROWS * (uintptr_t)(shape->key_rows * 2 * widths[shape->width]);
    *device = problem.host;
    *sum = problem.host_sum;
    device->counts =
        begin_before(copy("counts", problem.counts, problem.lists * 4), problem.missing);
    device->firsts =
        begin_before(copy("firsts", problem.firsts, problem.lists * 4), problem.missing);
    device->keys = begin_before(copy("keys", problem.keys, problem.list_keys * 4),
                                problem.missing * shape->key_stride);
    device->starts = reserve("starts", problem.layout.starts);
    device->entries = reserve("entries", problem.layout.entries);
    sum->partials =
        (const void *)((uintptr_t)copy("partials", sum->partials, problem.partials * 2) -
                       far_bytes);
    sum->starts = device->starts;
    sum->entries = problem.far_entries = reserve("far entries", problem.layout.entries);
    sum->sums = reserve("sums", (int64_t)problem.sums);
}

/* The sums' params of a chunk. */
static struct sparse_attn_bwd_sum_params sum_of(const struct sparse_attn_bwd_sum_params *all,
                                                int chunk) {
    struct sparse_attn_bwd_sum_params sum = *all;
    const int64_t row = 2 * widths[problem.shape->width];
    sum.starts += smelt__segments_starts(chunk, problem.host.key_count);
    sum.partials = (const char *)sum.partials +
                   (int64_t)chunk * problem.host.chunk * sum.key_rows * sum.key_stride * row;
    return sum;
}

static int run_sums(uint32_t blocks) {
    int good = 1;
    for (int chunk = 0; chunk < problem.host.chunks && good; chunk++) {
        struct sparse_attn_bwd_sum_params sum = sum_of(&problem.device_sum, chunk);
        sum.pdl_wait_at_end = chunk % 2; /* without PDL the wait has no effect */
        const struct smelt__launch launch = {.blocks = {blocks}, .params = &sum};
        good = works(
            smelt__kernel_launch(alone.context, alone.kernels[problem.shape->width], &launch, NULL),
            "launch");
    }
    return good && works(smelt_stream_synchronize(alone.context, NULL), "sums");
}

/* Runs the pass by its launch function, or with fewer blocks, each of which processes several
 * ranges. */
static int run_segments(void) {
    struct sparse_attn_bwd_segments_params params = problem.device;
    int pushed;
    if (problem.shape->blocks)
        return run_kernel(alone.kernels[WIDTHS], (uint32_t)problem.shape->blocks, &problem.device);
    params.chunks = 0; /* set by the launch function */
    if (!works(smelt_stream_synchronize(alone.context, NULL), "synchronize") ||
        !works(smelt__context_enter(alone.context, &pushed), "enter"))
        return 0;
    const smelt_status status =
        smelt__segments_launch(alone.context, alone.kernels[WIDTHS], &params, NULL);
    smelt__context_leave(alone.context, pushed);
    return works(status, "launch") &&
           works(smelt_stream_synchronize(alone.context, NULL), "segments");
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void prepare(const void *of) {
    const struct shape *const shape = of;
    make_problem(shape);
    reference_segments(&problem.host);
    place_problem(shape);
    for (int chunk = 0; chunk < problem.host.chunks && !without_sums; chunk++) {
        const struct sparse_attn_bwd_sum_params sum = sum_of(&problem.host_sum, chunk);
        reference_sums(&sum, sum_plans[shape->width]);
    }
}

static int run(const void *shape, int turn) {
    const size_t starts = (size_t)problem.layout.starts, entries = (size_t)problem.layout.entries;
    const uint32_t blocks = smelt__emulator() ? 7 : 1000;
    (void)shape;
    return fill(problem.device.entries, POISON, entries * sizeof(int)) &&
           upload(problem.device_sum.sums, problem.sums_before, problem.sums * sizeof(float)) &&
           run_segments() &&
           (without_sums || (move_entries() && run_sums(turn == 1 ? 2 : blocks))) &&
           same("starts", problem.device.starts, problem.host.starts, starts, 4) &&
           same("entries", problem.device.entries, problem.host.entries, entries, 4) &&
           (without_sums ||
            same("sums", problem.device_sum.sums, problem.host_sum.sums, problem.sums, 4));
}

static void draw_shape(void *of) {
    struct shape *const shape = of;
    *shape = (struct shape){.name = shape->name,
                            .groups = 1 + below(40),
                            .first_group = below(3),
                            .key_stride = 64 * (1 + below(4)),
                            .key_count = 1 + below(below(2) ? 50 : 3000),
                            .fill = (enum fill)below(FILLS),
                            .blocks = below(2) ? 1 + below(9) : 0,
                            .key_rows = 1 + below(3),
                            .width = below(8) == 0,
                            .chunk = below(2) ? 1 + below(20) : 0};
}

/* Reads the constants that the reference needs, and checks the range and parts that the cases
 * assume. */
static int read_plans(void) {
    for (int i = 0; i < WIDTHS; i++)
        sum_plans[i] =
            (struct sums_reference){.dqk = widths[i],
                                    .most_alone = plan_constant(sum_specs[i], "MOST_ALONE"),
                                    .run = plan_constant(sum_specs[i], "RUN")};
    without_sums = strcmp(alone.option, "lists") == 0;
    return plan_constant(TRANSPOSE, "RANGE") == RANGE && plan_constant(TRANSPOSE, "PART") == PART;
}

ALONE_TEST("gpu_bwd_segments", groups, chunk, .specs = {SUMS, WIDE_SUMS, TRANSPOSE},
           LARGE_SHAPES(large_shapes), .read_plans = read_plans)
