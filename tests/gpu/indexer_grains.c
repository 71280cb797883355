/*
 * Compares the kernels that find the grains of dk's rows in the indexer's deterministic backward
 * pass, and the one that adds sums of several parts, with a reference, bit for bit, each by itself.
 * Arguments: kernel_alone.h.
 */
#include "indexer_grains.h"

#include <math.h>

#include "kernel_alone.h"

enum {
    FAR_STRIDE = (1 << 29) + 64, /* five rows of it exceed 2^31 elements */
    UNWRITTEN = 0xff,            /* a byte that forms NaN */
    LEAST_BITS = 2,              /* minimum bits of an addend */
    MOST_BITS = 22,
    EMULATED_BLOCKS = 5,
    EMULATED_TOTALS = 600 /* rows: few, and still more than one per block */
};

/* Fixed cases: typical use and boundaries. */
static const struct shape shapes[] = {
    {"one of all", 1, 1, 1, 1, 1, 64, FINE, MOST_BITS, 0, 0},
    {"one head", 21, 300, 100, 2, 1, 128, FINE, MOST_BITS, 4, 0},
    {"one head, small", 21, 300, 100, 4, 1, 64, SMALL, MOST_BITS, 0, 0},
    {"one head, alone, small", 40, 90, 64, 1, 1, 128, SMALL, 9, 0, 0},
    {"pairs of 64 heads", 31, 500, 200, 2, 64, 128, COARSE, MOST_BITS, 0, 0},
    {"eights of 13 heads", 27, 500, 33, 8, 13, 64, COARSE, MOST_BITS, 12, 0},
    {"as many rows as bins", 5, 16384, 300, 2, 3, 64, COARSE, MOST_BITS, 0, 0},
    {"more rows than bins", 5, 16385, 300, 2, 3, 64, COARSE, MOST_BITS, 0, 0},
    {"few bits", 60, 100, 100, 1, 5, 128, COARSE, 3, 0, 0},
    {"many groups", 700, 40, 3, 1, 1, 64, COARSE, MOST_BITS, 0, 0},
    {"not finite", 40, 200, 100, 4, 7, 64, ODD, MOST_BITS, 0, 0},
    {"not finite, alone", 40, 200, 100, 1, 2, 128, ODD, MOST_BITS, 0, 0},
    {"beyond the largest number", 15, 200, 100, 2, 3, 64, HUGE_NUMBERS, MOST_BITS, 0, 0},
    {"beyond the largest number, fewest bits", 15, 200, 100, 4, 3, 64, HUGE_NUMBERS, LEAST_BITS, 0,
     0},
    {"denormal", 15, 200, 100, 2, 3, 64, TINY, MOST_BITS, 0, 0},
    {"zeros", 15, 200, 100, 2, 3, 64, ZEROS, MOST_BITS, 0, 0},
    {"far apart", 11, 300, 100, 2, 3, 64, COARSE, MOST_BITS, 0, 1},
};

/* Too slow on the emulator. */
static const struct shape large_shapes[] = {
    {"8192 queries in pairs", 8192, 8192, 2048, 2, 64, 128, COARSE, MOST_BITS, 0, 0},
    {"8192 queries in eights", 8192, 131072, 2048, 8, 16, 128, ODD, MOST_BITS, 0, 0},
};

enum { REACH, BOUNDS, GRAINS, TOTALS };

/* The kernels' arguments with pointers to the arrays on the host and on the device. */
static struct indexer_bwd_grains_params host, device;
static float largest; /* the largest sum that a group adds to a row */

/* ---- the device ------------------------------------------------------------------------------ */

static void place_problem(const struct shape *shape) {
    const int64_t places = place_count(&host), row = host.q_head_stride;
    device = host;
    if (shape->far) {
        device.q_head_stride = FAR_STRIDE;
        device.q_token_stride = (int64_t)FAR_STRIDE * shape->heads;
        device.weights_token_stride = device.key_stride = FAR_STRIDE;
    }
    device.q = copy_rows(
        "q", host.q,
        rows_of((int64_t)shape->tokens * shape->heads, 2 * row, 2 * device.q_head_stride));
#define COPY_LISTS(field, count, own, step)                                                        \
    device.field = copy_rows(                                                                      \
        #field, host.field,                                                                        \
        rows_of(count, (own) * (int64_t)sizeof *host.field, (step) * (int64_t)sizeof *host.field))
    device.weights = copy_rows(
        "weights", host.weights,
        rows_of(shape->tokens, 4 * host.weights_token_stride, 4 * device.weights_token_stride));
    COPY_LISTS(keys, host.groups, host.key_stride, device.key_stride);
    COPY_LISTS(grads, places, host.key_stride, device.key_stride);
    COPY(members, places);
    COPY(counts, host.groups);
    COPY(reach, places);
    COPY(bounds, host.rows * UNIT_KINDS);
    COPY(grains, host.rows);
    COPY(tops, host.top_count);
    COPY(sums, sum_count(&host));
    COPY(totals, sum_count(&host));
}

static int run_pass(int pass, uint32_t blocks) {
    return run_kernel(alone.kernels[pass], blocks, &device);
}

/* ---- judging --------------------------------------------------------------------------------- */

/* The largest number that blocks wrote; NaN if one wrote none. The assignment of groups to blocks
 * is not checked. */
static float find_largest(uint32_t blocks) {
    const size_t bytes = blocks * sizeof(float);
    const float *const tops = fetch(device.tops, packed(bytes));
    float found = 0;
    for (uint32_t i = 0; i < blocks; i++)
        found = isnan(tops[i]) || isnan(found) ? NAN : fmaxf(found, tops[i]);
    return found;
}

static int check_reach(uint32_t blocks) {
    const size_t places = (size_t)place_count(&host);
    if (!fill(device.reach, UNWRITTEN, places * sizeof(float)) ||
        !fill(device.tops, UNWRITTEN, blocks * sizeof(float)) || !run_pass(REACH, blocks) ||
        !same("reach", device.reach, host.reach, places, 4))
        return 0;
    const float got = find_largest(blocks);
    if (got != largest)
        printf("    the largest of tops is %.9g, not %.9g\n", (double)got, (double)largest);
    return got == largest;
}

static int check_bounds(uint32_t blocks) {
    const size_t bounds = (size_t)host.rows * UNIT_KINDS;
    return upload(device.reach, host.reach, (size_t)place_count(&host) * sizeof(float)) &&
           upload(device.tops, host.tops, (size_t)host.top_count * sizeof(float)) &&
           fill(device.bounds, 0, bounds * sizeof(unsigned)) && run_pass(BOUNDS, blocks) &&
           same("bounds", device.bounds, host.bounds, bounds, 4);
}

/* Checks the grains that follow from the host's bounds. */
static int check_grains(uint32_t blocks) {
    const size_t rows = (size_t)host.rows;
    return upload(device.bounds, host.bounds, rows * UNIT_KINDS * sizeof(unsigned)) &&
           fill(device.grains, UNWRITTEN, rows * sizeof(float)) && run_pass(GRAINS, blocks) &&
           same("grains", device.grains, host.grains, rows, 4);
}

/* Like `same`, but all NaNs are equal. */
static int same_numbers(const char *what, const float *numbers, const float *wanted, size_t count) {
    const size_t bytes = count * sizeof(float);
    const float *const got = fetch(numbers, packed(bytes));
    for (size_t i = 0; i < count; i++)
        if (memcmp(&got[i], &wanted[i], sizeof *got) != 0 && !(isnan(got[i]) && isnan(wanted[i]))) {
            printf("    %s[%zu] is %.9g, not %.9g\n", what, i, (double)got[i], (double)wanted[i]);
            return 0;
        }
    return 1;
}

/* Three launches. The totals before the first one have no meaning; those before the second are
 * zeros of the other sign where it adds nothing. With many rows the emulator runs only the
 * first. */
static int check_totals(uint32_t blocks) {
    const int rows = host.rows;
    int good = 1;
    if (smelt__emulator() && rows > EMULATED_TOTALS)
        device.rows = host.rows = EMULATED_TOTALS;
    const size_t count = sum_count(&host), bytes = count * sizeof(float);
    memset(host.totals, UNWRITTEN, bytes);
    for (int launch = 0; launch < 3 && good; launch++) {
        device.first = host.first = launch == 0;
        device.last = host.last = launch == 2;
        draw_sums(&host);
        for (size_t i = 0; i < count && launch == 1; i++)
            host.totals[i] = host.totals[i] == 0 ? -0.0F : host.totals[i];
        good = upload(device.sums, host.sums, bytes) && upload(device.totals, host.totals, bytes) &&
               run_pass(TOTALS, blocks);
        add_totals(&host);
        good = good && same_numbers("sums", device.sums, host.sums, count) &&
               same_numbers("totals", device.totals, host.totals, count);
    }
    device.rows = host.rows = rows;
    return good;
}

/* ---- cases ----------------------------------------------------------------------------------- */

static uint32_t fewer(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static void prepare(const void *shape) {
    make_problem(shape, &host);
    reference(&host, &largest);
    place_problem(shape);
}

/* Runs every pass once; the grains with the previous pass's bounds and with boundary values. */
static int run(const void *shape, int turn) {
    const uint32_t most_blocks = smelt__emulator() ? EMULATED_BLOCKS : UINT32_MAX;
    const uint32_t blocks = turn == 1 ? 2 : fewer((uint32_t)host.groups, most_blocks);
    const int unit = find_unit(largest, host.bits);
    (void)shape;
    if (!check_reach(fewer(blocks, (uint32_t)host.top_count)))
        return 0;
    find_bounds(&host, unit);
    find_grains(&host, unit);
    if (!check_bounds(blocks) || !check_grains(blocks))
        return 0;
    for (enum edges edges = 0; edges < EDGES; edges++) {
        set_edges(&host, edges);
        find_grains(&host, unit);
        if (!check_grains(blocks))
            return 0;
    }
    return check_totals(blocks);
}

static void draw_shape(void *of) {
    struct shape *const shape = of;
    const enum numbers numbers = (enum numbers)below(KINDS);
    const int most_heads = numbers == FINE || numbers == SMALL ? 1 : numbers == TINY ? 3 : 128;
    *shape = (struct shape){.name = shape->name,
                            .tokens = 1 + below(30),
                            .rows = 1 + below(below(2) ? 100 : 20000),
                            .width = 1 + below(below(2) ? 40 : 300),
                            .group_queries = 1 << below(4),
                            .heads = 1 + below(most_heads),
                            .dim = below(2) ? 64 : 128,
                            .numbers = numbers,
                            .bits = LEAST_BITS + below(MOST_BITS - LEAST_BITS + 1),
                            .padding = below(3) * 4};
}

ALONE_TEST("gpu_indexer_grains", tokens, far,
           .specs = {"indexer_bwd_grains:pass=reach", "indexer_bwd_grains:pass=bounds",
                     "indexer_bwd_grains:pass=grains", "indexer_bwd_grains:pass=totals"},
           LARGE_SHAPES(large_shapes), .far = offsetof(struct shape, far))
