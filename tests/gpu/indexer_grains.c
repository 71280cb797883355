/*
 * The kernels that find the grains of dk's rows in the indexer's deterministic backward pass, and
 * the one that adds up sums of several grains, each by itself, against a reference, bit for bit.
 * Run by hand on a machine with a GPU, by `meson test` on the emulator with several schedules.
 *
 *     gpu_indexer_grains [CASES [ARCH]]
 *
 * CASES: random ones, beside the listed ones; SMELT_TEST_SEED repeats a run. ARCH: on the emulator,
 * that one alone.
 */
#include "indexer_grains.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_alone.h"

enum {
    SCHEDULES = 3,
    DEFAULT_CASES = 10,
    FAR_STRIDE = (1 << 29) + 64, /* five rows of it pass 2^31 elements */
    UNWRITTEN = 0xff,            /* bytes of it are NaN */
    LEAST_BITS = 2,              /* of an addend */
    MOST_BITS = 22,
    EMULATED_BLOCKS = 5,
    EMULATED_TOTALS = 600, /* rows of them: a block goes on from row to row after few */
    MOST_FAILURES = 2      /* after which no further case is run */
};

/* Listed cases: real use and the edges. */
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

/* Beyond the emulator's patience. */
static const struct shape large_shapes[] = {
    {"8192 queries in pairs", 8192, 8192, 2048, 2, 64, 128, COARSE, MOST_BITS, 0, 0},
    {"8192 queries in eights", 8192, 131072, 2048, 8, 16, 128, ODD, MOST_BITS, 0, 0},
};

enum { REACH, BOUNDS, GRAINS, TOTALS, PASSES };

struct test {
    smelt_context *context;
    const struct smelt__kernel *kernels[PASSES];
    struct random random;
    struct alone_counts counts;
};

/* ---- the device ------------------------------------------------------------------------------ */

/* Rows of so many bytes side by side on the host; on the device `stride` bytes from one to the
 * next, and nothing behind the last. */
static void *copy_rows(struct test *test, struct problem *problem, const char *name,
                       const void *host, int64_t rows, size_t bytes, size_t stride) {
    void **const device = &problem->memory[problem->memories++];
    const size_t all = (size_t)(rows - 1) * stride + bytes;
    const struct emu_interface *const emulator = smelt__emulator();
    int good = 1;
    if (problem->shape->far)
        *device = (void *)(uintptr_t)emulator->reserve(all);
    else
        good = works(smelt_device_alloc(test->context, all, device), "alloc");
    if (!good || !*device)
        exit(1);
    if (emulator)
        emulator->name((uint64_t)(uintptr_t)*device, name);
    const int64_t pieces = stride == bytes ? 1 : rows;
    for (int64_t i = 0; i < pieces && good; i++)
        good = works(smelt_device_upload(test->context, (char *)*device + (size_t)i * stride,
                                         (const char *)host + (size_t)i * bytes,
                                         pieces == 1 ? all : bytes),
                     "upload");
    if (!good)
        exit(1);
    return *device;
}

static void place_problem(struct test *test, struct problem *problem) {
    const struct indexer_bwd_grains_params *host = &problem->host;
    struct indexer_bwd_grains_params *device = &problem->device;
    const struct shape *shape = problem->shape;
    const int64_t places = place_count(host), row = host->q_head_stride;
    const int64_t weights = host->weights_token_stride;
    *device = *host;
    if (shape->far) {
        device->q_head_stride = FAR_STRIDE;
        device->q_token_stride = (int64_t)FAR_STRIDE * shape->heads;
        device->weights_token_stride = device->key_stride = FAR_STRIDE;
    }
    device->q = copy_rows(test, problem, "q", host->q, (int64_t)shape->tokens * shape->heads,
                          2 * (size_t)row, 2 * (size_t)device->q_head_stride);
#define ROWS(field, rows, own, stride)                                                             \
    device->field =                                                                                \
        copy_rows(test, problem, #field, host->field, rows, (size_t)(own) * sizeof *host->field,   \
                  (size_t)(stride) * sizeof *host->field)
    ROWS(weights, shape->tokens, weights, device->weights_token_stride);
    ROWS(keys, host->groups, host->key_stride, device->key_stride);
    ROWS(grads, places, host->key_stride, device->key_stride);
    ROWS(members, places, 1, 1);
    ROWS(counts, host->groups, 1, 1);
    ROWS(reach, places, 1, 1);
    ROWS(bounds, host->rows, UNIT_KINDS, UNIT_KINDS);
    ROWS(grains, host->rows, 1, 1);
    ROWS(tops, host->top_count, 1, 1);
    ROWS(sums, host->rows, host->dim, host->dim);
    ROWS(totals, host->rows, host->dim, host->dim);
#undef ROWS
}

static void free_problem(struct test *test, struct problem *problem) {
    free_arrays(problem);
    for (int i = 0; i < problem->memories; i++)
        smelt_device_free(test->context, problem->memory[i]);
}

static int upload_again(struct test *test, void *device, const void *host, size_t bytes) {
    return works(smelt_device_upload(test->context, device, host, bytes), "upload");
}

static int run_kernel(struct test *test, const struct problem *problem, int pass, uint32_t blocks) {
    const struct smelt__launch launch = {.blocks = {blocks}, .params = &problem->device};
    return works(smelt_stream_synchronize(test->context, NULL), "synchronize") &&
           works(smelt__kernel_launch(test->context, test->kernels[pass], &launch, NULL),
                 "launch") &&
           works(smelt_stream_synchronize(test->context, NULL), "synchronize");
}

/* ---- judging --------------------------------------------------------------------------------- */

/* The largest that blocks wrote, NaN where one wrote none. Which block has which groups is the
 * kernel's affair. */
static float find_largest(struct test *test, const float *device, uint32_t blocks) {
    float *const tops = take(blocks * sizeof *tops), largest = 0;
    const int good = works(
        smelt_device_download(test->context, tops, device, blocks * sizeof *tops), "download");
    for (uint32_t i = 0; i < blocks && good; i++)
        largest = isnan(tops[i]) || isnan(largest) ? NAN : fmaxf(largest, tops[i]);
    free(tops);
    return good ? largest : NAN;
}

static int check_reach(struct test *test, const struct problem *problem, uint32_t blocks,
                       float largest) {
    const struct indexer_bwd_grains_params *device = &problem->device, *host = &problem->host;
    const size_t places = (size_t)place_count(host);
    if (!works(smelt_device_fill(test->context, device->reach, UNWRITTEN, places * sizeof(float)),
               "fill") ||
        !works(smelt_device_fill(test->context, device->tops, UNWRITTEN, blocks * sizeof(float)),
               "fill") ||
        !run_kernel(test, problem, REACH, blocks) ||
        !same_words(test->context, "reach", device->reach, host->reach, places))
        return 0;
    const float got = find_largest(test, device->tops, blocks);
    if (got != largest)
        printf("    the largest of tops is %.9g, not %.9g\n", (double)got, (double)largest);
    return got == largest;
}

static int check_bounds(struct test *test, const struct problem *problem, uint32_t blocks) {
    const struct indexer_bwd_grains_params *device = &problem->device, *host = &problem->host;
    const size_t rows = (size_t)host->rows;
    return upload_again(test, device->reach, host->reach,
                        (size_t)place_count(host) * sizeof(float)) &&
           upload_again(test, device->tops, host->tops, (size_t)host->top_count * sizeof(float)) &&
           works(smelt_device_fill(test->context, device->bounds, 0,
                                   rows * UNIT_KINDS * sizeof(unsigned)),
                 "fill") &&
           run_kernel(test, problem, BOUNDS, blocks) &&
           same_words(test->context, "bounds", device->bounds, host->bounds, rows * UNIT_KINDS);
}

/* With the host's bounds. */
static int check_grains(struct test *test, const struct problem *problem, uint32_t blocks) {
    const struct indexer_bwd_grains_params *device = &problem->device, *host = &problem->host;
    const size_t rows = (size_t)host->rows;
    return upload_again(test, device->bounds, host->bounds, rows * UNIT_KINDS * sizeof(unsigned)) &&
           works(smelt_device_fill(test->context, device->grains, UNWRITTEN, rows * sizeof(float)),
                 "fill") &&
           run_kernel(test, problem, GRAINS, blocks) &&
           same_words(test->context, "grains", device->grains, host->grains, rows);
}

/* As same_words, of any NaN for any other. */
static int same_numbers(struct test *test, const char *what, const float *device,
                        const float *wanted, size_t count) {
    float *const got = take(count * sizeof *got);
    int good =
        works(smelt_device_download(test->context, got, device, count * sizeof *got), "download");
    for (size_t i = 0; i < count && good; i++) {
        good = (isnan(got[i]) && isnan(wanted[i])) || memcmp(&got[i], &wanted[i], sizeof *got) == 0;
        if (!good)
            printf("    %s[%zu] is %.9g, not %.9g\n", what, i, (double)got[i], (double)wanted[i]);
    }
    free(got);
    return good;
}

/* Of three launches, the totals before the first of which mean nothing, and those before the second
 * are zeros of the other sign where it adds nothing. Of many rows the emulator has the first alone.
 */
static int check_totals(struct test *test, struct problem *of, uint32_t blocks) {
    struct problem problem = *of;
    struct indexer_bwd_grains_params *const device = &problem.device, *const host = &problem.host;
    if (smelt__emulator() && host->rows > EMULATED_TOTALS)
        device->rows = host->rows = EMULATED_TOTALS;
    const size_t count = sum_count(host), bytes = count * sizeof(float);
    memset(host->totals, UNWRITTEN, bytes);
    for (int launch = 0; launch < 3; launch++) {
        device->first = host->first = launch == 0;
        device->last = host->last = launch == 2;
        draw_sums(&test->random, host);
        for (size_t i = 0; i < count && launch == 1; i++)
            host->totals[i] = host->totals[i] == 0 ? -0.0F : host->totals[i];
        if (!upload_again(test, device->sums, host->sums, bytes) ||
            !upload_again(test, device->totals, host->totals, bytes) ||
            !run_kernel(test, &problem, TOTALS, blocks))
            return 0;
        add_totals(host);
        if (!same_numbers(test, "sums", device->sums, host->sums, count) ||
            !same_numbers(test, "totals", device->totals, host->totals, count))
            return 0;
    }
    return 1;
}

/* ---- cases ----------------------------------------------------------------------------------- */

static uint32_t fewer(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* Every pass, once; the grains with the bounds of the pass before and with edges. */
static int check_passes(struct test *test, struct problem *problem, uint32_t blocks,
                        float largest) {
    const struct indexer_bwd_grains_params *host = &problem->host;
    const int unit = find_unit(largest, host->bits);
    if (!check_reach(test, problem, fewer(blocks, (uint32_t)host->top_count), largest))
        return 0;
    find_bounds(host, unit);
    find_grains(host, unit);
    if (!check_bounds(test, problem, blocks) || !check_grains(test, problem, blocks))
        return 0;
    for (enum edges edges = 0; edges < EDGES; edges++) {
        set_edges(host, edges);
        find_grains(host, unit);
        if (!check_grains(test, problem, blocks))
            return 0;
    }
    return check_totals(test, problem, blocks);
}

static void check(struct test *test, const struct shape *shape) {
    if (test->counts.failures == MOST_FAILURES || (shape->far && !smelt__emulator()))
        return;
    struct problem problem;
    const uint64_t seed = test->random.state;
    const char *const arch = smelt_context_arch(test->context);
    float largest;
    make_problem(&test->random, shape, &problem);
    reference(&test->random, &problem.host, &largest);
    place_problem(test, &problem);
    const int schedules = schedules_to_run(SCHEDULES, 2);
    const uint32_t most_blocks = smelt__emulator() ? EMULATED_BLOCKS : UINT32_MAX;
    int good = 1;
    for (int i = 0; i < schedules && good; i++) {
        const uint32_t blocks = i == 1 ? 2 : fewer((uint32_t)problem.host.groups, most_blocks);
        smelt__emulator_configure(arch, smelt__schedule_at(seed, i + test->counts.cases % 2), 0);
        good = check_passes(test, &problem, blocks, largest);
    }
    test->counts.cases++;
    test->counts.failures += !good;
    if (!good)
        printf("FAILED %s on %s: %d queries, %d rows, width %d, %d queries a group, heads %d, dim "
               "%d, numbers %d, bits %d, padding %d; random state %llu\n",
               shape->name, arch, shape->tokens, shape->rows, shape->width, shape->group_queries,
               shape->heads, shape->dim, (int)shape->numbers, shape->bits, shape->padding,
               (unsigned long long)seed);
    free_problem(test, &problem);
}

static struct shape draw_shape(struct random *random) {
    const enum numbers numbers = (enum numbers)random_below(random, KINDS);
    const int most_heads = numbers == FINE || numbers == SMALL ? 1 : numbers == TINY ? 3 : 128;
    return (struct shape){.name = "a random shape",
                          .tokens = 1 + random_below(random, 30),
                          .rows = 1 + random_below(random, random_below(random, 2) ? 100 : 20000),
                          .width = 1 + random_below(random, random_below(random, 2) ? 40 : 300),
                          .group_queries = 1 << random_below(random, 4),
                          .heads = 1 + random_below(random, most_heads),
                          .dim = random_below(random, 2) ? 64 : 128,
                          .numbers = numbers,
                          .bits = LEAST_BITS + random_below(random, MOST_BITS - LEAST_BITS + 1),
                          .padding = random_below(random, 3) * 4};
}

static int run(void *user, int listed, int random_cases) {
    static const char *const specs[PASSES] = {
        "indexer_bwd_grains:pass=reach", "indexer_bwd_grains:pass=bounds",
        "indexer_bwd_grains:pass=grains", "indexer_bwd_grains:pass=totals"};
    struct test *const test = user;
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    int good = 1;
    options.kind = SMELT_CONTEXT_DEVICE;
    if (!works(smelt_context_create(&test->context, &options), "context"))
        return 0;
    for (int i = 0; i < PASSES && good; i++)
        good = get_kernel(test->context, specs[i], &test->kernels[i]);
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
    struct test test = {.random = random_begin("gpu_indexer_grains")};
    return run_alone(argc, argv, DEFAULT_CASES, run, &test, &test.counts);
}
