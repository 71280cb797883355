/*
 * Compares the kernels that make the backward pass's lists with a reference, entry for entry.
 * Arguments: kernel_alone.h.
 */
#include "slots.h"

#include "bwd_lists_reference.h"
#include "ops/sparse_attn_params.h"

enum {
    POISON = 0xA5,
    COPY_POISON = 0x5A, /* of a list's other copies, to detect writes beyond a list */
    FAR = 1 << 30,      /* elements between rows: the third row is beyond 2^31 */
    ZERO_FLOATS = 4,    /* of a vector of the zeros; the vector after the last must not change */
    ZERO_BYTES = ZERO_FLOATS * sizeof(float),
    MOST_ZEROS = 3000
};

enum list { ALL_QUERIES, LISTED, COUNTED, RANGED, BUCKETED, LISTS };

/* One problem. */
struct shape {
    const char *name;
    int batches, tokens, rows, width, topk;
    int group_queries, ascending; /* 1: the argument `ascending`; 2: `firsts` is given */
    int past;                     /* offset of the first row from a multiple of 16 bytes, in ints */
    int padding;                  /* ints between rows */
    int lengths;                  /* 1: topk_length is given */
    enum fill fill;
    enum list list;
    int far; /* 1: rows of every array are FAR apart; emulator only, whose memory is allocated on
                access */
};

/* Fixed cases: typical use and boundaries. */
static const struct shape shapes[] = {
    {"one slot", 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, ANY, ALL_QUERIES, 0},
    {"slot order", 1, 20, 5000, 700, 700, 1, 0, 0, 0, 0, DISTINCT, ALL_QUERIES, 0},
    {"slot order, all valid", 1, 9, 9000, 2048, 2048, 1, 0, 0, 0, 0, NEIGHBOURS, ALL_QUERIES, 0},
    {"slot order, cut", 2, 9, 5000, 700, 200, 1, 0, 1, 3, 0, DISTINCT, LISTED, 0},
    {"ascending", 1, 9, 5000, 700, 700, 1, 1, 0, 0, 0, DISTINCT, ALL_QUERIES, 0},
    {"ascending, cut", 1, 9, 5000, 700, 200, 1, 1, 0, 0, 0, ANY, ALL_QUERIES, 0},
    {"ascending, unaligned", 2, 9, 300, 97, 97, 1, 1, 3, 2, 1, ANY, LISTED, 0},
    {"ascending, one row", 1, 3, 300, 300, 300, 1, 1, 0, 0, 0, ONE, ALL_QUERIES, 0},
    {"ascending, two windows", 1, 3, 400000, 700, 700, 1, 1, 0, 0, 0, ANY, ALL_QUERIES, 0},
    {"ascending, no map", 1, 3, 7000000, 700, 700, 1, 1, 0, 0, 0, ANY, ALL_QUERIES, 0},
    {"firsts", 1, 9, 5000, 700, 700, 1, 2, 0, 0, 0, DISTINCT, ALL_QUERIES, 0},
    {"firsts, again", 2, 9, 300, 97, 97, 1, 2, 3, 2, 1, ANY, LISTED, 0},
    {"firsts, two windows", 1, 3, 400000, 700, 700, 1, 2, 0, 0, 0, FEW, ALL_QUERIES, 0},
    {"firsts, no map", 1, 3, 7000000, 700, 700, 1, 2, 0, 0, 0, FEW, ALL_QUERIES, 0},
    {"firsts, nothing valid", 1, 20, 100, 64, 64, 1, 2, 0, 0, 0, NONE, ALL_QUERIES, 0},
    {"firsts, eights", 1, 20, 300, 100, 100, 8, 2, 0, 0, 0, FEW, ALL_QUERIES, 0},
    {"pairs", 1, 33, 500, 200, 200, 2, 0, 0, 0, 0, DISTINCT, ALL_QUERIES, 0},
    {"fours", 1, 30, 500, 200, 100, 4, 0, 1, 0, 1, ANY, LISTED, 0},
    {"eights", 1, 60, 2000, 500, 500, 8, 0, 0, 0, 0, NEIGHBOURS, ALL_QUERIES, 0},
    {"eights, dense", 1, 20, 256, 256, 256, 8, 0, 0, 0, 0, NEIGHBOURS, ALL_QUERIES, 0},
    {"eights across batches", 3, 5, 300, 100, 100, 8, 0, 0, 0, 0, ANY, ALL_QUERIES, 0},
    {"eights, few rows", 1, 20, 300, 100, 100, 8, 0, 0, 0, 0, FEW, ALL_QUERIES, 0},
    {"eights, one row", 1, 9, 300, 200, 200, 8, 0, 0, 0, 0, ONE, COUNTED, 0},
    {"eights, windows", 2, 5, 110000, 300, 300, 8, 0, 0, 0, 0, FEW, ALL_QUERIES, 0},
    {"eights, no map", 2, 7, 800000, 300, 200, 8, 0, 0, 0, 0, FEW, LISTED, 0},
    {"pairs, no map", 1, 5, INT_MAX, 100, 100, 2, 0, 0, 0, 0, DISTINCT, ALL_QUERIES, 0},
    {"nothing valid", 1, 20, 100, 64, 64, 4, 0, 0, 0, 0, NONE, ALL_QUERIES, 0},
    {"no rows", 1, 20, 0, 33, 33, 2, 0, 0, 0, 0, ANY, ALL_QUERIES, 0},
    {"causal", 1, 70, 70, 64, 64, 4, 0, 0, 0, 0, CAUSAL, RANGED, 0},
    {"buckets", 1, 70, 500, 300, 128, 2, 0, 2, 1, 0, CAUSAL, BUCKETED, 0},
    {"buckets of one", 1, 70, 500, 300, 128, 1, 0, 2, 1, 0, CAUSAL, BUCKETED, 0},
    {"far, ascending", 2, 3, 500, 150, 100, 1, 1, 0, 0, 0, ANY, ALL_QUERIES, 1},
    {"far, fours", 1, 17, 300, 70, 70, 4, 0, 0, 0, 0, FEW, ALL_QUERIES, 1},
    {"far, slot order", 2, 3, 500, 150, 100, 1, 0, 0, 0, 0, ANY, ALL_QUERIES, 1},
};

/* Too slow on the emulator. */
static const struct shape large_shapes[] = {
    {"8192 queries", 1, 8192, 8192, 2048, 2048, 1, 0, 0, 0, 0, DISTINCT, ALL_QUERIES, 0},
    {"8192 queries, ascending", 1, 8192, 32768, 2048, 2048, 1, 1, 0, 0, 0, ANY, ALL_QUERIES, 0},
    {"8192 queries in eights", 1, 8192, 32768, 2048, 2048, 8, 0, 0, 0, 0, ANY, ALL_QUERIES, 0},
    {"a long row", 1, 3, 3000000, 1000000, 1000000, 2, 0, 1, 1, 0, ANY, ALL_QUERIES, 0},
};

static long long map_bits; /* total of all windows of the kernel's maps */

/* The kernel's arguments with pointers to the arrays on the host and on the device. */
static struct sparse_attn_bwd_lists_params host, device;
static size_t index_count; /* of `indices`, with gaps */

/* ---- problems -------------------------------------------------------------------------------- */

static int *fill_indices(const struct shape *shape) {
    const int64_t stride = shape->width + shape->padding;
    const int64_t queries = (int64_t)shape->batches * shape->tokens;
    index_count = (size_t)(shape->past + queries * stride);
    int *indices = filled(index_count * sizeof *indices, 0); /* gaps hold a valid index */
    for (int64_t query = 0; query < queries; query++)
        for (int slot = 0; slot < shape->width; slot++)
            indices[shape->past + query * stride + slot] =
                draw_slot(shape->fill, shape->rows, shape->width, shape->tokens, query, slot);
    return indices;
}

static int *fill_ints(int64_t count, int most) {
    const int odd[] = {-7, 0, INT_MAX, INT_MIN, most};
    int *ints = take((size_t)count * sizeof *ints);
    for (int64_t i = 0; i < count; i++)
        ints[i] = below(6) ? below(most) : odd[below(5)];
    return ints;
}

static int *pair_of(int first, int second) {
    int *pair = take(2 * sizeof *pair);
    pair[0] = first;
    pair[1] = second;
    return pair;
}

/* The query list in one of its forms. */
static void fill_list(const struct shape *shape) {
    struct work_params *work = &host.work;
    const int queries = shape->batches * shape->tokens, capacity = queries * 5 / 4 + 1;
    work->query_capacity = queries;
    if (shape->list == ALL_QUERIES)
        return;
    const int counts[] = {capacity, capacity * 2 / 3, 0, INT_MAX, -5};
    work->queries = fill_ints(capacity, queries);
    work->query_capacity = capacity;
    if (shape->list == COUNTED)
        work->query_count = pair_of(counts[below(5)], 0);
    if (shape->list == RANGED)
        work->query_range = pair_of(capacity / 3, capacity / 2);
    if (shape->list == BUCKETED) {
        int *extents = take((size_t)capacity * sizeof *extents);
        for (int i = 0; i < capacity; i++)
            extents[i] = below(shape->width + 1);
        work->extents = extents;
        host.last_range = pair_of(capacity / 3, capacity / 2);
    }
}

/* Rows of elements, the first of `host_stride`. */
static struct rows shape_rows(const struct shape *shape, int64_t count, int64_t length,
                              int64_t host_stride, size_t element) {
    return (struct rows){count, (size_t)length * element, (size_t)host_stride * element,
                         (size_t)(shape->far ? FAR : host_stride) * element};
}

/* Of each list, from the given key on. */
static struct rows list_rows(const struct shape *shape, int from, size_t element) {
    return shape_rows(shape, host.groups, host.key_stride - from, host.key_stride, element);
}

static void make_problem(const struct shape *shape) {
    struct work_params *work = &host.work;
    const int used = shape->width < shape->topk ? shape->width : shape->topk;
    host = (struct sparse_attn_bwd_lists_params){0};
    work->batches = shape->batches;
    work->tokens = shape->tokens;
    work->rows = shape->rows;
    work->width = shape->width;
    work->indices = fill_indices(shape) + shape->past;
    work->indices_token_stride = shape->width + shape->padding;
    work->indices_batch_stride = shape->tokens * work->indices_token_stride;
    if (shape->lengths) {
        work->topk_length = fill_ints((int64_t)shape->batches * shape->tokens, shape->width + 1);
        work->topk_length_batch_stride = shape->tokens;
        work->topk_length_token_stride = 1;
    }
    fill_list(shape);
    host.group_queries = shape->group_queries;
    host.groups = (work->query_capacity + shape->group_queries - 1) / shape->group_queries;
    host.copies = shape->group_queries == 1 ? 1 + below(3) : 1;
    host.copy_stride = (used * shape->group_queries + 63) / 64 * 64 + 64 * below(2);
    host.key_stride = host.copies * host.copy_stride;
    host.topk = shape->topk;
    host.ascending = shape->ascending == 1;
    const size_t groups = (size_t)host.groups, slots = groups * (size_t)host.key_stride;
    host.members = take(groups * (size_t)shape->group_queries * sizeof(int));
    host.counts = take(groups * sizeof(int));
    host.firsts = shape->ascending == 2 ? take(groups * sizeof(int)) : NULL;
    host.zero_vectors = below(3) ? below(MOST_ZEROS) : 0;
    const size_t zero_bytes = (size_t)host.zero_vectors * ZERO_BYTES;
    host.zeros = filled(zero_bytes + ZERO_BYTES, 0);
    memset((char *)host.zeros + zero_bytes, POISON, ZERO_BYTES);
    host.masks = filled(slots, POISON);
    host.keys = filled(slots * sizeof(int), POISON);
    for (int64_t group = 0; group < host.groups; group++)
        memset(host.keys + group * host.key_stride + host.copy_stride, COPY_POISON,
               (size_t)(host.key_stride - host.copy_stride) * sizeof(int));
}

/* Repeats the reference's results for each other copy. */
static void repeat_lists(void) {
    for (int group = 0; group < host.groups; group++) {
        int *const keys = host.keys + (int64_t)group * host.key_stride;
        const int length = (host.counts[group] + 63) / 64 * 64;
        for (int number = 1; number < host.copies; number++)
            memcpy(keys + number * host.copy_stride, keys, (size_t)length * sizeof(int));
    }
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void copy_indices(const struct shape *shape) {
    const int64_t queries = (int64_t)shape->batches * shape->tokens;
    if (shape->far) {
        device.work.indices =
            copy_rows("indices", host.work.indices,
                      shape_rows(shape, queries, shape->width, host.work.indices_token_stride, 4));
        device.work.indices_token_stride = FAR;
        device.work.indices_batch_stride = (int64_t)shape->tokens * FAR;
        return;
    }
    const int *const indices =
        copy("indices", host.work.indices - shape->past, index_count * sizeof(int));
    device.work.indices = indices + shape->past;
    if (smelt__emulator() && shape->past)
        smelt__emulator()->forbid((uint64_t)(uintptr_t)indices, (size_t)shape->past * sizeof(int));
}

static void prepare(const void *of) {
    const struct shape *const shape = of;
    make_problem(shape);
    device = host;
    const size_t zero_bytes = (size_t)(host.zero_vectors + 1) * ZERO_BYTES;
    COPY(work.topk_length, shape->batches * shape->tokens);
    COPY(work.queries, host.work.query_capacity);
    COPY(work.query_count, 1);
    COPY(work.query_range, 2);
    COPY(work.extents, host.work.query_capacity);
    COPY(last_range, 2);
    RESULT(members, host.groups * host.group_queries, POISON);
    RESULT(counts, host.groups, POISON);
    RESULT(firsts, host.groups, POISON);
    device.zeros = result_rows("zeros", host.zeros, packed(zero_bytes), sizeof(float), POISON);
    RESULT_ROWS(keys, list_rows(shape, 0, sizeof(int)), POISON);
    RESULT_ROWS(masks, list_rows(shape, 0, 1), POISON);
    copy_indices(shape);
    if (shape->far)
        device.key_stride = FAR;
    reference_lists(&host, map_bits / shape->group_queries);
    repeat_lists();
}

static int run(const void *shape, int turn) {
    return poison_results() &&
           fill_rows(device.keys + host.copy_stride, COPY_POISON,
                     list_rows(shape, host.copy_stride, sizeof(int))) &&
           run_kernel(alone.kernels[0], turn == 1 ? 2 : (uint32_t)host.groups, &device) &&
           same_results();
}

/* More than 2^31 vectors of zeros (32 GiB), and a vector after them that must not change; on a GPU
 * with enough memory. */
static void check_many_zeros(void) {
    enum { LOOKED_AT = 1024 /* bytes checked in each of several ranges */ };
    static const long long vectors = (1LL << 31) + 77;
    const size_t bytes = (size_t)vectors * ZERO_BYTES, end = bytes + ZERO_BYTES;
    const size_t places[] = {0, (size_t)INT_MAX * ZERO_BYTES, bytes - LOOKED_AT};
    static const unsigned char zeros[LOOKED_AT];
    unsigned char behind[ZERO_BYTES];
    void *memory;
    if (smelt_device_alloc(alone.context, end, &memory) != SMELT_OK) {
        printf("many zeros: not run, for want of 32 GiB\n");
        return;
    }
    const struct sparse_attn_bwd_lists_params params = {
        .zeros = memory, .zero_vectors = vectors, .group_queries = 1};
    memset(behind, POISON, sizeof behind);
    int good = fill(memory, POISON, end) && run_kernel(alone.kernels[0], 1000, &params);
    for (size_t i = 0; i < sizeof places / sizeof *places && good; i++)
        good = same("zeros", (char *)memory + places[i], zeros, LOOKED_AT, 1);
    good = good && same("behind the zeros", (char *)memory + bytes, behind, sizeof behind, 1);
    count_case(good, "many zeros");
    smelt_device_free(alone.context, memory);
}

static void draw_shape(void *of) {
    struct shape *const shape = of;
    const int large = smelt__emulator() == NULL;
    const int width = 1 + below(below(2) ? 40 : 600);
    *shape = (struct shape){.name = shape->name,
                            .batches = 1 + below(3),
                            .tokens = 1 + below(large ? 5000 : 30),
                            .rows = below(below(2) ? 100 : 60000),
                            .width = width,
                            .topk = below(2) ? width : 1 + below(width),
                            .group_queries = 1 << below(4),
                            .ascending = below(3),
                            .past = below(4),
                            .padding = below(2) ? below(9) : 0,
                            .lengths = below(2),
                            .fill = (enum fill)below(FILLS),
                            .list = (enum list)below(LISTS)};
}

#define SPEC "sparse_attn_bwd_lists:pass=group"

static int read_plans(void) {
    map_bits = 8LL * plan_constant(SPEC, "MAP_BYTES") * plan_constant(SPEC, "MOST_WINDOWS");
    return 1;
}

ALONE_TEST("gpu_bwd_lists", batches, far, .specs = {SPEC}, LARGE_SHAPES(large_shapes),
           .far = offsetof(struct shape, far), .read_plans = read_plans,
           .run_large = check_many_zeros)
