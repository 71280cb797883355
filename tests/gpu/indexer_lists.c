/*
 * Compares the kernel that makes the lists of the indexer's backward pass with a reference, entry
 * for entry, bit for bit. Arguments: kernel_alone.h.
 */
#include "slots.h"

#include <math.h>

#include "indexer_bwd_lists.params.h"

enum { LIST_STEP = 64, PARTS = 3, FAR_STRIDE = 1 << 30, POISON = 0xA5 };

/* One problem. */
struct shape {
    const char *name;
    int tokens, rows, width, group_queries;
    int runs;    /* 1: lists have parts */
    int padding; /* slots between rows */
    int lengths; /* 1: topk_length is given */
    enum fill fill;
    int far; /* 1: lists so far apart that offsets exceed 2^31; on the emulator, whose pages are
                allocated on access */
};

/* Fixed cases: typical use and boundaries. */
static const struct shape shapes[] = {
    {"one slot", 1, 1, 1, 1, 0, 0, 0, ANY, 0},
    {"alone", 9, 5000, 700, 1, 0, 3, 1, DISTINCT, 0},
    {"alone, all of a table", 5, 300, 300, 1, 0, 0, 0, NEIGHBOURS, 0},
    {"alone, one row", 5, 300, 100, 1, 0, 0, 0, ONE, 0},
    {"alone, windows", 3, 70000, 300, 1, 0, 1, 0, ANY, 0},
    {"alone, more than is put together at a time", 2, 17000, 16001, 1, 0, 0, 0, DISTINCT, 0},
    {"pairs of one part", 31, 500, 200, 2, 0, 0, 0, DISTINCT, 0},
    {"fours of one part", 30, 500, 200, 4, 0, 1, 1, ANY, 0},
    {"eights of one part", 20, 300, 100, 8, 0, 0, 0, FEW, 0},
    {"pairs", 31, 500, 200, 2, 1, 0, 0, DISTINCT, 0},
    {"pairs, dense", 4, 8192, 4096, 2, 1, 0, 0, ANY, 0},
    {"pairs, the last rows", 7, 8200, 64, 2, 1, 0, 0, LAST, 0},
    {"fours", 31, 2000, 300, 4, 1, 2, 1, NEIGHBOURS, 0},
    {"eights, few rows", 20, 300, 100, 8, 1, 1, 0, FEW, 0},
    {"eights, more than is put together at a time", 9, 14000, 3000, 8, 1, 0, 0, DISTINCT, 0},
    {"fours, windows", 7, 60000, 300, 4, 1, 0, 1, ANY, 0},
    {"pairs, windows of full words", 3, 65536, 500, 2, 1, 0, 0, LAST, 0},
    {"pairs, windows, rows again", 5, 33000, 300, 2, 1, 0, 0, FEW, 0},
    {"far apart", 5, 300, 100, 2, 1, 0, 0, DISTINCT, 1},
    {"no rows", 20, 0, 33, 2, 1, 0, 0, ANY, 0},
    {"nothing valid", 20, 100, 64, 4, 1, 0, 0, NONE, 0},
};

/* Too slow on the emulator. */
static const struct shape large_shapes[] = {
    {"8192 queries in pairs", 8192, 8192, 2048, 2, 1, 0, 0, DISTINCT, 0},
    {"8192 queries in eights", 8192, 131072, 2048, 8, 1, 0, 0, ANY, 0},
    {"a long row", 3, 3000000, 1000000, 2, 1, 0, 0, ANY, 0},
};

/* The kernel's arguments with pointers to the arrays on the host and on the device. */
static struct indexer_bwd_lists_params host, device;

/* ---- problems -------------------------------------------------------------------------------- */

static int is_masked(int query, int slot) {
    const int index = host.indices[query * host.indices_token_stride + slot];
    const int length =
        host.topk_length ? host.topk_length[query * host.topk_length_token_stride] : host.width;
    return slot >= length || index < 0 || index >= host.rows;
}

/* Index rows, whose gaps hold valid indices, and their gradients, with NaN where the kernel must
 * not read. */
static void fill_slots(const struct shape *shape) {
    const int stride = shape->width + shape->padding;
    const int odd[] = {-7, 0, INT_MAX, INT_MIN, shape->width};
    int *indices = take((size_t)shape->tokens * (size_t)stride * sizeof *indices);
    int *lengths = shape->lengths ? take((size_t)shape->tokens * sizeof *lengths) : NULL;
    float *grad = take((size_t)shape->tokens * (size_t)stride * sizeof *grad);
    host.indices = indices;
    host.topk_length = lengths;
    host.grad = grad;
    host.indices_token_stride = host.grad_token_stride = stride;
    host.topk_length_token_stride = 1;
    for (int query = 0; query < shape->tokens; query++) {
        if (lengths)
            lengths[query] = below(3) ? below(shape->width) : odd[below(5)];
        for (int slot = 0; slot < stride; slot++) {
            const int64_t at = (int64_t)query * stride + slot;
            indices[at] = slot < shape->width ? draw_slot(shape->fill, shape->rows, shape->width,
                                                          shape->tokens, query, slot)
                                              : 0;
            grad[at] = slot < shape->width && !is_masked(query, slot)
                           ? (float)(1 + below(1000)) / 7.0F
                           : NAN;
        }
    }
}

static size_t member_count(void) {
    return (size_t)host.groups * (size_t)host.group_queries;
}

/* `lists` lists of four bytes an entry. */
static struct rows lists(size_t count) {
    const size_t bytes = (size_t)host.key_stride * 4;
    return (struct rows){(int64_t)count, bytes, bytes, (size_t)device.key_stride * 4};
}

static void make_problem(const struct shape *shape) {
    const int members = shape->group_queries;
    host = (struct indexer_bwd_lists_params){.tokens = shape->tokens,
                                             .rows = shape->rows,
                                             .width = shape->width,
                                             .group_queries = members,
                                             .groups = (shape->tokens + members - 1) / members};
    host.key_stride =
        (shape->width * members + LIST_STEP - 1) / LIST_STEP * LIST_STEP + LIST_STEP * below(2);
    const size_t groups = (size_t)host.groups, slots = groups * (size_t)host.key_stride;
    fill_slots(shape);
    host.members = filled(member_count() * sizeof(int), POISON);
    host.counts = filled(groups * sizeof(int), POISON);
    host.runs = shape->runs ? filled(2 * groups * sizeof(int), POISON) : NULL;
    host.keys = filled(slots * sizeof(int), POISON);
    host.grads = filled(slots * (size_t)members * sizeof(float), POISON);
}

/* ---- the reference --------------------------------------------------------------------------- */

/* The keys that a group's members name: [rows] bits of members, [group_queries, rows] sums. */
struct named {
    unsigned char *masks;
    float *sums;
};

static void read_members(int group, struct named *named) {
    memset(named->masks, 0, (size_t)host.rows);
    for (int member = 0; member < host.group_queries; member++) {
        const int64_t query = (int64_t)group * host.group_queries + member;
        host.members[query] = query < host.tokens ? (int)query : -1;
        for (int slot = 0; slot < host.width && query < host.tokens; slot++) {
            if (is_masked((int)query, slot))
                continue;
            const int key = host.indices[query * host.indices_token_stride + slot];
            const float grad = host.grad[query * host.grad_token_stride + slot];
            float *const sum = &named->sums[(int64_t)member * host.rows + key];
            *sum = (named->masks[key] >> member & 1 ? *sum : 0.0F) + grad;
            named->masks[key] |= (unsigned char)(1 << member);
        }
    }
}

/* The part of the list to which a key belongs, by the members that name it. */
static int part_of(int mask) {
    const int half = host.group_queries / 2, first = mask & ((1 << half) - 1);
    return !host.runs || !(mask >> half) ? 0 : first ? 1 : 2;
}

/* An entry of a group's list; key -1: none. */
static void put(int group, int place, int key, const struct named *named) {
    host.keys[(int64_t)group * host.key_stride + place] = key;
    for (int member = 0; member < host.group_queries; member++)
        host.grads[((int64_t)group * host.group_queries + member) * host.key_stride + place] =
            key >= 0 && named->masks[key] >> member & 1
                ? named->sums[(int64_t)member * host.rows + key]
                : 0.0F;
}

static void reference(void) {
    struct named named = {take((size_t)host.rows),
                          take((size_t)host.rows * (size_t)host.group_queries * sizeof(float))};
    for (int group = 0; group < host.groups; group++) {
        int count = 0;
        read_members(group, &named);
        for (int part = 0; part < PARTS; part++) {
            if (host.runs && part > 0)
                host.runs[2 * (int64_t)group + part - 1] = count;
            for (int key = 0; key < host.rows; key++)
                if (named.masks[key] && part_of(named.masks[key]) == part)
                    put(group, count++, key, &named);
        }
        host.counts[group] = count;
        for (; count % LIST_STEP; count++)
            put(group, count, -1, &named);
    }
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void prepare(const void *of) {
    const struct shape *const shape = of;
    make_problem(shape);
    device = host;
    if (shape->far)
        device.key_stride = FAR_STRIDE;
    const int64_t slots = host.tokens * host.indices_token_stride;
    COPY(indices, slots);
    COPY(topk_length, host.tokens);
    COPY(grad, slots);
    RESULT(members, member_count(), POISON);
    RESULT(counts, host.groups, POISON);
    RESULT(runs, 2 * host.groups, POISON);
    RESULT_ROWS(keys, lists((size_t)host.groups), POISON);
    RESULT_ROWS(grads, lists(member_count()), POISON);
    reference();
}

static int run(const void *shape, int turn) {
    (void)shape;
    return poison_results() &&
           run_kernel(alone.kernels[0], turn == 1 ? 2 : (uint32_t)host.groups, &device) &&
           same_results();
}

static void draw_shape(void *of) {
    struct shape *const shape = of;
    const int large = smelt__emulator() == NULL, group = 1 << below(4);
    *shape = (struct shape){.name = shape->name,
                            .tokens = 1 + below(large ? 5000 : 30),
                            .rows = below(below(2) ? 100 : 60000),
                            .width = 1 + below(below(2) ? 40 : 600),
                            .group_queries = group,
                            .runs = group > 1 && below(2),
                            .padding = below(2) ? below(9) : 0,
                            .lengths = below(2),
                            .fill = (enum fill)below(FILLS)};
}

ALONE_TEST("gpu_indexer_lists", tokens, far, .specs = {"indexer_bwd_lists"},
           LARGE_SHAPES(large_shapes), .far = offsetof(struct shape, far))
