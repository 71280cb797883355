/*
 * The kernels that make the backward pass's lists against a reference, entry for entry. Run by hand
 * on a machine with a GPU, by `meson test` on the emulator with smaller problems and several
 * schedules.
 *
 *     gpu_bwd_lists [CASES [ARCH [NAME]]]    random cases beside the listed ones;
 * SMELT_TEST_SEED repeats a run. ARCH: on the emulator, that one alone; NAME: cases whose names
 * have this text
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/random.h"
#include "bwd_lists_reference.h"
#include "kernel_alone.h"
#include "ops/sparse_attn_params.h"

enum {
    SCHEDULES = 3,
    DEFAULT_CASES = 10,
    POISON = 0xA5,
    COPY_POISON = 0x5A, /* of a list's other copies: what is copied too far shows */
    MOST_FAILURES = 1,  /* after which no further case is run */
    FAR = 1 << 30,      /* elements from a row to the next: the third lies past 2^31 */
    ZERO_FLOATS = 4,    /* of a vector of the zeros; behind the last is one that stays as it is */
    ZERO_BYTES = ZERO_FLOATS * sizeof(float),
    MOST_ZEROS = 3000
};

/* What an index row holds. */
enum fill {
    DISTINCT,   /* valid rows, none twice where there are enough; some slots masked */
    ANY,        /* valid rows, masked slots in between */
    FEW,        /* the same few rows again and again */
    ONE,        /* row 0 in every slot */
    CAUSAL,     /* rows up to the query's own number, ascending, the rest masked */
    NONE,       /* nothing valid */
    NEIGHBOURS, /* all but the same rows for neighbouring queries */
    FILLS
};
enum list { ALL_QUERIES, LISTED, COUNTED, RANGED, BUCKETED, LISTS };

/* One problem. */
struct shape {
    const char *name;
    int batches, tokens, rows, width, topk;
    int group_queries, ascending; /* 1: as the argument; 2: `firsts` is given */
    int past;                     /* ints that the first row starts past a multiple of 16 bytes */
    int padding;                  /* ints between two rows */
    int lengths;                  /* 1: topk_length is given */
    enum fill fill;
    enum list list;
};

/* Listed cases: real use and the edges. */
static const struct shape shapes[] = {
    {"one slot", 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, ANY, ALL_QUERIES},
    {"slot order", 1, 20, 5000, 700, 700, 1, 0, 0, 0, 0, DISTINCT, ALL_QUERIES},
    {"slot order, all valid", 1, 9, 9000, 2048, 2048, 1, 0, 0, 0, 0, NEIGHBOURS, ALL_QUERIES},
    {"slot order, cut", 2, 9, 5000, 700, 200, 1, 0, 1, 3, 0, DISTINCT, LISTED},
    {"ascending", 1, 9, 5000, 700, 700, 1, 1, 0, 0, 0, DISTINCT, ALL_QUERIES},
    {"ascending, cut", 1, 9, 5000, 700, 200, 1, 1, 0, 0, 0, ANY, ALL_QUERIES},
    {"ascending, unaligned", 2, 9, 300, 97, 97, 1, 1, 3, 2, 1, ANY, LISTED},
    {"ascending, one row", 1, 3, 300, 300, 300, 1, 1, 0, 0, 0, ONE, ALL_QUERIES},
    {"ascending, two windows", 1, 3, 400000, 700, 700, 1, 1, 0, 0, 0, ANY, ALL_QUERIES},
    {"ascending, no map", 1, 3, 7000000, 700, 700, 1, 1, 0, 0, 0, ANY, ALL_QUERIES},
    {"firsts", 1, 9, 5000, 700, 700, 1, 2, 0, 0, 0, DISTINCT, ALL_QUERIES},
    {"firsts, again", 2, 9, 300, 97, 97, 1, 2, 3, 2, 1, ANY, LISTED},
    {"firsts, two windows", 1, 3, 400000, 700, 700, 1, 2, 0, 0, 0, FEW, ALL_QUERIES},
    {"firsts, no map", 1, 3, 7000000, 700, 700, 1, 2, 0, 0, 0, FEW, ALL_QUERIES},
    {"firsts, nothing valid", 1, 20, 100, 64, 64, 1, 2, 0, 0, 0, NONE, ALL_QUERIES},
    {"firsts, eights", 1, 20, 300, 100, 100, 8, 2, 0, 0, 0, FEW, ALL_QUERIES},
    {"pairs", 1, 33, 500, 200, 200, 2, 0, 0, 0, 0, DISTINCT, ALL_QUERIES},
    {"fours", 1, 30, 500, 200, 100, 4, 0, 1, 0, 1, ANY, LISTED},
    {"eights", 1, 60, 2000, 500, 500, 8, 0, 0, 0, 0, NEIGHBOURS, ALL_QUERIES},
    {"eights, dense", 1, 20, 256, 256, 256, 8, 0, 0, 0, 0, NEIGHBOURS, ALL_QUERIES},
    {"eights across batches", 3, 5, 300, 100, 100, 8, 0, 0, 0, 0, ANY, ALL_QUERIES},
    {"eights, few rows", 1, 20, 300, 100, 100, 8, 0, 0, 0, 0, FEW, ALL_QUERIES},
    {"eights, one row", 1, 9, 300, 200, 200, 8, 0, 0, 0, 0, ONE, COUNTED},
    {"eights, windows", 2, 5, 110000, 300, 300, 8, 0, 0, 0, 0, FEW, ALL_QUERIES},
    {"eights, no map", 2, 7, 800000, 300, 200, 8, 0, 0, 0, 0, FEW, LISTED},
    {"pairs, no map", 1, 5, INT_MAX, 100, 100, 2, 0, 0, 0, 0, DISTINCT, ALL_QUERIES},
    {"nothing valid", 1, 20, 100, 64, 64, 4, 0, 0, 0, 0, NONE, ALL_QUERIES},
    {"no rows", 1, 20, 0, 33, 33, 2, 0, 0, 0, 0, ANY, ALL_QUERIES},
    {"causal", 1, 70, 70, 64, 64, 4, 0, 0, 0, 0, CAUSAL, RANGED},
    {"buckets", 1, 70, 500, 300, 128, 2, 0, 2, 1, 0, CAUSAL, BUCKETED},
    {"buckets of one", 1, 70, 500, 300, 128, 1, 0, 2, 1, 0, CAUSAL, BUCKETED},
};

/* On the emulator alone, whose memory exists when touched: rows of every array lie FAR apart. */
static const struct shape far_shapes[] = {
    {"far, ascending", 2, 3, 500, 150, 100, 1, 1, 0, 0, 0, ANY, ALL_QUERIES},
    {"far, fours", 1, 17, 300, 70, 70, 4, 0, 0, 0, 0, FEW, ALL_QUERIES},
    {"far, slot order", 2, 3, 500, 150, 100, 1, 0, 0, 0, 0, ANY, ALL_QUERIES},
};

/* Beyond the emulator's patience. */
static const struct shape large_shapes[] = {
    {"8192 queries", 1, 8192, 8192, 2048, 2048, 1, 0, 0, 0, 0, DISTINCT, ALL_QUERIES},
    {"8192 queries, ascending", 1, 8192, 32768, 2048, 2048, 1, 1, 0, 0, 0, ANY, ALL_QUERIES},
    {"8192 queries in eights", 1, 8192, 32768, 2048, 2048, 8, 0, 0, 0, 0, ANY, ALL_QUERIES},
    {"a long row", 1, 3, 3000000, 1000000, 1000000, 2, 0, 1, 1, 0, ANY, ALL_QUERIES},
};

/* A problem's arrays on the host, and the kernel's arguments with pointers to them and to the
 * device's. */
struct problem {
    const struct shape *shape;
    struct sparse_attn_bwd_lists_params host, device;
    void *memory[20]; /* the device's */
    int memories;
    int64_t slots; /* of `indices`, with gaps */
    int far;       /* 1: one of far_shapes */
};

/* An array by rows, which lie further apart on the device than here where they are to be far. */
struct rows {
    int64_t count, length;       /* elements of each */
    int64_t host_stride, stride; /* from one to the next */
    size_t bytes;                /* of an element */
};

struct test {
    smelt_context *context;
    const struct smelt__kernel *group;
    struct random random;
    long long map_bits; /* of all windows */
    struct alone_counts counts;
};

/* ---- problems -------------------------------------------------------------------------------- */

static int draw_masked(struct random *random, int rows) {
    const int masked[] = {-1, rows, INT_MIN, INT_MAX, rows < INT_MAX ? rows + 1 : -2};
    return rows == INT_MAX ? -1 - random_below(random, INT_MAX) : masked[random_below(random, 5)];
}

static int draw_slot(struct random *random, const struct shape *shape, int64_t query, int slot) {
    const int rows = shape->rows, width = shape->width;
    if (rows == 0 || shape->fill == NONE)
        return draw_masked(random, rows);
    switch (shape->fill) {
    case ONE:
        return 0;
    case FEW:
        return random_below(random, 5) ? random_below(random, rows < 9 ? rows : 9) * (rows / 9)
                                       : draw_masked(random, rows);
    case CAUSAL:
        return slot <= query % shape->tokens && slot < rows ? slot : draw_masked(random, rows);
    case NEIGHBOURS: /* in an order of its own, a few rows of its own */
        return random_below(random, 10)
                   ? (int)((slot * 7LL + query) % (rows < width ? rows : width))
                   : random_below(random, rows);
    case DISTINCT: {
        const int64_t step = rows / width;
        if (random_below(random, 6) == 0)
            return draw_masked(random, rows);
        return step > 0 ? (int)((slot * 5LL % width) * step + query % step) : slot % rows;
    }
    default:
        return random_below(random, 4) ? random_below(random, rows) : draw_masked(random, rows);
    }
}

static int *fill_indices(struct random *random, struct problem *problem) {
    const struct shape *shape = problem->shape;
    const int64_t stride = shape->width + shape->padding;
    const int64_t queries = (int64_t)shape->batches * shape->tokens;
    problem->slots = shape->past + queries * stride;
    int *indices = take((size_t)problem->slots * sizeof *indices);
    memset(indices, 0, (size_t)problem->slots * sizeof *indices); /* gaps hold a valid index */
    for (int64_t query = 0; query < queries; query++)
        for (int slot = 0; slot < shape->width; slot++)
            indices[shape->past + query * stride + slot] = draw_slot(random, shape, query, slot);
    return indices;
}

static int *fill_ints(struct random *random, int64_t count, int below) {
    const int odd[] = {-7, 0, INT_MAX, INT_MIN, below};
    int *ints = take((size_t)count * sizeof *ints);
    for (int64_t i = 0; i < count; i++)
        ints[i] =
            random_below(random, 6) ? random_below(random, below) : odd[random_below(random, 5)];
    return ints;
}

static int *pair_of(int first, int second) {
    int *pair = take(2 * sizeof *pair);
    pair[0] = first;
    pair[1] = second;
    return pair;
}

/* The query list in one of its forms. */
static void fill_list(struct random *random, struct problem *problem) {
    const struct shape *shape = problem->shape;
    struct work_params *work = &problem->host.work;
    const int queries = shape->batches * shape->tokens, capacity = queries * 5 / 4 + 1;
    work->query_capacity = queries;
    if (shape->list == ALL_QUERIES)
        return;
    const int counts[] = {capacity, capacity * 2 / 3, 0, INT_MAX, -5};
    work->queries = fill_ints(random, capacity, queries);
    work->query_capacity = capacity;
    if (shape->list == COUNTED)
        work->query_count = pair_of(counts[random_below(random, 5)], 0);
    if (shape->list == RANGED)
        work->query_range = pair_of(capacity / 3, capacity / 2);
    if (shape->list == BUCKETED) {
        int *extents = take((size_t)capacity * sizeof *extents);
        for (int i = 0; i < capacity; i++)
            extents[i] = random_below(random, shape->width + 1);
        work->extents = extents;
        problem->host.last_range = pair_of(capacity / 3, capacity / 2);
    }
}

static int64_t list_slots(const struct problem *problem) {
    return (int64_t)problem->host.groups * problem->host.key_stride;
}

static void make_problem(struct random *random, const struct shape *shape,
                         struct problem *problem) {
    memset(problem, 0, sizeof *problem);
    problem->shape = shape;
    struct sparse_attn_bwd_lists_params *host = &problem->host;
    struct work_params *work = &host->work;
    const int used = shape->width < shape->topk ? shape->width : shape->topk;
    work->batches = shape->batches;
    work->tokens = shape->tokens;
    work->rows = shape->rows;
    work->width = shape->width;
    work->indices = fill_indices(random, problem) + shape->past;
    work->indices_token_stride = shape->width + shape->padding;
    work->indices_batch_stride = shape->tokens * work->indices_token_stride;
    if (shape->lengths) {
        work->topk_length =
            fill_ints(random, (int64_t)shape->batches * shape->tokens, shape->width + 1);
        work->topk_length_batch_stride = shape->tokens;
        work->topk_length_token_stride = 1;
    }
    fill_list(random, problem);
    host->group_queries = shape->group_queries;
    host->groups = (work->query_capacity + shape->group_queries - 1) / shape->group_queries;
    host->copies = shape->group_queries == 1 ? 1 + random_below(random, 3) : 1;
    host->copy_stride = (used * shape->group_queries + 63) / 64 * 64 + 64 * random_below(random, 2);
    host->key_stride = host->copies * host->copy_stride;
    host->topk = shape->topk;
    host->ascending = shape->ascending == 1;
    host->members = take((size_t)host->groups * (size_t)shape->group_queries * sizeof(int));
    host->counts = take((size_t)host->groups * sizeof(int));
    if (shape->ascending == 2)
        host->firsts = take((size_t)host->groups * sizeof(int));
    host->keys = take((size_t)list_slots(problem) * sizeof(int));
    host->masks = take((size_t)list_slots(problem));
    host->zero_vectors = random_below(random, 3) ? random_below(random, MOST_ZEROS) : 0;
    host->zeros = take((size_t)host->zero_vectors * ZERO_BYTES + ZERO_BYTES);
    memset(host->zeros, 0, (size_t)host->zero_vectors * ZERO_BYTES);
    memset((char *)host->zeros + host->zero_vectors * ZERO_BYTES, POISON, ZERO_BYTES);
    memset(host->keys, POISON, (size_t)list_slots(problem) * sizeof(int));
    for (int64_t group = 0; group < host->groups; group++)
        memset(host->keys + group * host->key_stride + host->copy_stride, COPY_POISON,
               (size_t)(host->key_stride - host->copy_stride) * sizeof(int));
    memset(host->masks, POISON, (size_t)list_slots(problem));
}

/* What the reference gave, once more for each other copy. */
static void repeat_lists(struct sparse_attn_bwd_lists_params *host) {
    for (int group = 0; group < host->groups; group++) {
        int *const keys = host->keys + (int64_t)group * host->key_stride;
        const int length = (host->counts[group] + 63) / 64 * 64;
        for (int number = 1; number < host->copies; number++)
            memcpy(keys + number * host->copy_stride, keys, (size_t)length * sizeof(int));
    }
}

static void free_problem(struct test *test, struct problem *problem) {
    const struct work_params *work = &problem->host.work;
    const void *host[] = {work->indices - problem->shape->past,
                          work->topk_length,
                          work->queries,
                          work->query_count,
                          work->query_range,
                          work->extents,
                          problem->host.last_range,
                          problem->host.members,
                          problem->host.counts,
                          problem->host.firsts,
                          problem->host.keys,
                          problem->host.masks,
                          problem->host.zeros};
    for (size_t i = 0; i < sizeof host / sizeof *host; i++)
        free((void *)(uintptr_t)host[i]);
    for (int i = 0; i < problem->memories; i++)
        smelt_device_free(test->context, problem->memory[i]);
}

/* ---- the device ------------------------------------------------------------------------------ */

/* A copy on the device; null of null. */
static void *copy(struct test *test, struct problem *problem, const char *name, const void *host,
                  int64_t count, size_t bytes) {
    void **device = &problem->memory[problem->memories];
    if (!host)
        return NULL;
    problem->memories++;
    if (!upload(test->context, name, host, (size_t)count * bytes, device))
        exit(1);
    return *device;
}

/* Rows of `length` elements, the first of `host_stride`. */
static struct rows rows_of(const struct problem *problem, int64_t count, int64_t length,
                           int64_t host_stride, size_t bytes) {
    return (struct rows){count, length, host_stride, problem->far ? FAR : host_stride, bytes};
}

/* Of each list. */
static struct rows list_rows(const struct problem *problem, size_t bytes) {
    const int stride = problem->host.key_stride;
    return rows_of(problem, problem->host.groups, stride, stride, bytes);
}

static char *row_at(const void *array, int64_t row, int64_t stride, size_t bytes) {
    return (char *)(uintptr_t)array + row * stride * (int64_t)bytes;
}

/* A copy on the device of an array by rows. */
static void *copy_rows(struct test *test, struct problem *problem, const char *name,
                       const void *host, struct rows rows) {
    if (!problem->far || !host)
        return copy(test, problem, name, host, rows.count * rows.host_stride, rows.bytes);
    const uint64_t memory =
        smelt__emulator()->reserve((size_t)(rows.count * rows.stride) * rows.bytes);
    if (!memory)
        exit(1);
    void *const device = problem->memory[problem->memories++] = (void *)(uintptr_t)memory;
    smelt__emulator()->name(memory, name);
    for (int64_t row = 0; row < rows.count; row++)
        if (!works(smelt_device_upload(test->context, row_at(device, row, rows.stride, rows.bytes),
                                       row_at(host, row, rows.host_stride, rows.bytes),
                                       (size_t)rows.length * rows.bytes),
                   "upload"))
            exit(1);
    return device;
}

static void place_problem(struct test *test, struct problem *problem) {
    const struct shape *shape = problem->shape;
    const struct sparse_attn_bwd_lists_params *host = &problem->host;
    struct sparse_attn_bwd_lists_params *device = &problem->device;
    const int64_t queries = (int64_t)shape->batches * shape->tokens;
    const int64_t capacity = host->work.query_capacity;
    *device = *host;
#define COPY(field, count)                                                                         \
    device->field = copy(test, problem, #field, host->field, count, sizeof *host->field)
    COPY(work.topk_length, queries);
    COPY(work.queries, capacity);
    COPY(work.query_count, 1);
    COPY(work.query_range, 2);
    COPY(work.extents, capacity);
    COPY(last_range, 2);
    COPY(members, (int64_t)host->groups * host->group_queries);
    COPY(counts, host->groups);
    COPY(firsts, host->groups);
    COPY(zeros, (host->zero_vectors + 1) * ZERO_FLOATS);
#undef COPY
    device->keys = copy_rows(test, problem, "keys", host->keys, list_rows(problem, sizeof(int)));
    device->masks = copy_rows(test, problem, "masks", host->masks, list_rows(problem, 1));
    const int *const indices =
        problem->far ? copy_rows(test, problem, "indices", host->work.indices,
                                 rows_of(problem, queries, shape->width,
                                         host->work.indices_token_stride, sizeof(int)))
                     : copy(test, problem, "indices", host->work.indices - shape->past,
                            problem->slots, sizeof(int));
    device->work.indices = indices + shape->past;
    if (problem->far) {
        device->key_stride = FAR;
        device->work.indices_token_stride = FAR;
        device->work.indices_batch_stride = (int64_t)shape->tokens * FAR;
    }
    if (smelt__emulator() && shape->past)
        smelt__emulator()->forbid((uint64_t)(uintptr_t)indices, (size_t)shape->past * sizeof(int));
}

static int poison(struct test *test, void *device, struct rows rows, int value) {
    int good = 1;
    for (int64_t row = 0; row < rows.count && rows.length > 0 && good && device; row++)
        good = works(smelt_device_fill(test->context, row_at(device, row, rows.stride, rows.bytes),
                                       value, (size_t)rows.length * rows.bytes),
                     "fill");
    return good;
}

static int poison_keys(struct test *test, const struct problem *problem) {
    const int first = problem->host.copy_stride;
    struct rows rows = list_rows(problem, sizeof(int));
    if (!poison(test, problem->device.keys, rows, POISON))
        return 0;
    rows.length -= first;
    return poison(test, problem->device.keys + first, rows, COPY_POISON);
}

/* Poisons what is written, runs. */
static int run_kernel(struct test *test, const struct problem *problem, uint32_t blocks) {
    const struct sparse_attn_bwd_lists_params *params = &problem->device;
    const struct smelt__launch launch = {.blocks = {blocks}, .params = params};
    return works(smelt_device_fill(test->context, params->counts, POISON,
                                   (size_t)params->groups * sizeof(int)),
                 "fill") &&
           (!params->firsts || works(smelt_device_fill(test->context, params->firsts, POISON,
                                                       (size_t)params->groups * sizeof(int)),
                                     "fill")) &&
           works(smelt_device_fill(test->context, params->zeros, POISON,
                                   (size_t)(params->zero_vectors + 1) * ZERO_BYTES),
                 "fill") &&
           poison_keys(test, problem) &&
           poison(test, params->masks, list_rows(problem, 1), POISON) &&
           works(smelt_stream_synchronize(test->context, NULL), "synchronize") &&
           works(smelt__kernel_launch(test->context, test->group, &launch, NULL), "launch") &&
           works(smelt_stream_synchronize(test->context, NULL), "synchronize");
}

/* ---- judging --------------------------------------------------------------------------------- */

static int same(struct test *test, const char *what, const void *device, const void *wanted,
                int64_t count, size_t bytes) {
    unsigned char *got = take((size_t)count * bytes);
    int good =
        works(smelt_device_download(test->context, got, device, (size_t)count * bytes), "download");
    for (int64_t i = 0; i < count && good; i++) {
        int is = 0, should = 0;
        memcpy(&is, got + (size_t)i * bytes, bytes);
        memcpy(&should, (const unsigned char *)wanted + (size_t)i * bytes, bytes);
        if (is != should) {
            printf("    %s[%lld] is %d, not %d\n", what, (long long)i, is, should);
            good = 0;
        }
    }
    free(got);
    return good;
}

static int same_rows(struct test *test, const char *what, const void *device, const void *wanted,
                     struct rows rows) {
    int good = 1;
    for (int64_t row = 0; row < rows.count && good; row++)
        good = same(test, what, row_at(device, row, rows.stride, rows.bytes),
                    row_at(wanted, row, rows.host_stride, rows.bytes), rows.length, rows.bytes);
    return good;
}

static int judge(struct test *test, const struct problem *problem) {
    const struct sparse_attn_bwd_lists_params *device = &problem->device, *host = &problem->host;
    return same(test, "members", device->members, host->members,
                (int64_t)host->groups * host->group_queries, sizeof(int)) &&
           same(test, "counts", device->counts, host->counts, host->groups, sizeof(int)) &&
           (!host->firsts ||
            same(test, "firsts", device->firsts, host->firsts, host->groups, sizeof(int))) &&
           same(test, "zeros", device->zeros, host->zeros, (host->zero_vectors + 1) * ZERO_FLOATS,
                sizeof(float)) &&
           same_rows(test, "keys", device->keys, host->keys, list_rows(problem, sizeof(int))) &&
           same_rows(test, "masks", device->masks, host->masks, list_rows(problem, 1));
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void check(struct test *test, const struct shape *shape, int far) {
    if (test->counts.failures == MOST_FAILURES || !strstr(shape->name, test->counts.only))
        return;
    struct problem problem;
    const uint64_t seed = test->random.state;
    const char *const arch = smelt_context_arch(test->context);
    make_problem(&test->random, shape, &problem);
    problem.far = far;
    place_problem(test, &problem);
    reference_lists(&problem.host, test->map_bits / shape->group_queries);
    repeat_lists(&problem.host);
    const int schedules = schedules_to_run(SCHEDULES, 2);
    int good = 1;
    for (int i = 0; i < schedules && good; i++) {
        const uint32_t blocks = i == 1 ? 2 : (uint32_t)problem.host.groups;
        smelt__emulator_configure(arch, smelt__schedule_at(seed, i + test->counts.cases % 2), 0);
        good = run_kernel(test, &problem, blocks) && judge(test, &problem);
    }
    test->counts.cases++;
    test->counts.failures += !good;
    if (!good)
        printf("FAILED %s on %s: %d x %d queries, %d rows, width %d + %d, topk %d, %d queries a "
               "group, ascending %d, past %d, lengths %d, fill %d, list %d; random state "
               "%llu\n",
               shape->name, arch, shape->batches, shape->tokens, shape->rows, shape->width,
               shape->padding, shape->topk, shape->group_queries, shape->ascending, shape->past,
               shape->lengths, (int)shape->fill, (int)shape->list, (unsigned long long)seed);
    free_problem(test, &problem);
}

/* More vectors of zeros than 2^31, 32 GiB, and a vector behind them that stays as it is: where
 * there is a GPU with so much memory left. */
static void check_many_zeros(struct test *test) {
    enum { LOOKED_AT = 1024 /* bytes, in several places */ };
    static const long long vectors = (1LL << 31) + 77;
    const size_t bytes = (size_t)vectors * ZERO_BYTES, end = bytes + ZERO_BYTES;
    const size_t places[] = {0, (size_t)INT_MAX * ZERO_BYTES, bytes - LOOKED_AT};
    static const unsigned char zeros[LOOKED_AT];
    unsigned char behind[ZERO_BYTES];
    void *memory;
    if (test->counts.failures == MOST_FAILURES || !strstr("many zeros", test->counts.only))
        return;
    if (smelt_device_alloc(test->context, end, &memory) != SMELT_OK) {
        printf("many zeros: not run, for want of 32 GiB\n");
        return;
    }
    const struct sparse_attn_bwd_lists_params params = {
        .zeros = memory, .zero_vectors = vectors, .group_queries = 1};
    const struct smelt__launch launch = {.blocks = {1000}, .params = &params};
    memset(behind, POISON, sizeof behind);
    int good = works(smelt_device_fill(test->context, memory, POISON, end), "fill") &&
               works(smelt_stream_synchronize(test->context, NULL), "synchronize") &&
               works(smelt__kernel_launch(test->context, test->group, &launch, NULL), "launch") &&
               works(smelt_stream_synchronize(test->context, NULL), "synchronize");
    for (size_t i = 0; i < sizeof places / sizeof *places && good; i++)
        good = same(test, "zeros", (char *)memory + places[i], zeros, LOOKED_AT, 1);
    good = good && same(test, "behind the zeros", (char *)memory + bytes, behind, sizeof behind, 1);
    test->counts.cases++;
    test->counts.failures += !good;
    if (!good)
        printf("FAILED many zeros on %s\n", smelt_context_arch(test->context));
    smelt_device_free(test->context, memory);
}

static struct shape draw_shape(struct random *random) {
    const int large = smelt__emulator() == NULL;
    const int width = 1 + random_below(random, random_below(random, 2) ? 40 : 600);
    return (struct shape){.name = "a random shape",
                          .batches = 1 + random_below(random, 3),
                          .tokens = 1 + random_below(random, large ? 5000 : 30),
                          .rows = random_below(random, random_below(random, 2) ? 100 : 60000),
                          .width = width,
                          .topk = random_below(random, 2) ? width : 1 + random_below(random, width),
                          .group_queries = 1 << random_below(random, 4),
                          .ascending = random_below(random, 3),
                          .past = random_below(random, 4),
                          .padding = random_below(random, 2) ? random_below(random, 9) : 0,
                          .lengths = random_below(random, 2),
                          .fill = (enum fill)random_below(random, FILLS),
                          .list = (enum list)random_below(random, LISTS)};
}

/* Rows that the kernel's maps hold, of a member, all windows together. */
static int find_map(struct test *test) {
    struct smelt__plan plan;
    int found;
    if (!works(smelt__plan_from_text("sparse_attn_bwd_lists:pass=group",
                                     smelt_context_arch(test->context), &plan),
               "plan"))
        return 0;
    test->map_bits = 8LL * smelt__plan_constant(&plan, "MAP_BYTES", &found) *
                     smelt__plan_constant(&plan, "MOST_WINDOWS", &found);
    return 1;
}

static int run(void *user, int listed, int random_cases) {
    struct test *const test = user;
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    options.kind = SMELT_CONTEXT_DEVICE;
    if (!works(smelt_context_create(&test->context, &options), "context"))
        return 0;
    int good = get_kernel(test->context, "sparse_attn_bwd_lists:pass=group", &test->group) &&
               find_map(test);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes && listed && good; i++)
        check(test, &shapes[i], 0);
    for (size_t i = 0;
         i < sizeof far_shapes / sizeof *far_shapes && listed && good && smelt__emulator(); i++)
        check(test, &far_shapes[i], 1);
    for (size_t i = 0; i < sizeof large_shapes / sizeof *large_shapes && good && !smelt__emulator();
         i++)
        check(test, &large_shapes[i], 0);
    if (good && !smelt__emulator())
        check_many_zeros(test);
    for (int i = 0; i < random_cases && good; i++) {
        const struct shape shape = draw_shape(&test->random);
        check(test, &shape, 0);
    }
    smelt_context_destroy(&test->context);
    return good;
}

int main(int argc, char **argv) {
    struct test test = {.random = random_begin("gpu_bwd_lists")};
    return run_alone(argc, argv, DEFAULT_CASES, run, &test, &test.counts);
}
