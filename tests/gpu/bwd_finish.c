/*
 * The last step of sparse attention's backward pass by itself, bit for bit: dq's rows out of their
 * slices, dkv out of its sums, dsink out of its parts. What an operator's results are compared by
 * is too coarse for a bit at the end of a number. Run by hand on a machine with a GPU, by `meson
 * test` on the emulator.
 *
 *     gpu_bwd_finish [CASES [ARCH [NAME]]]    random cases beside the listed ones; SMELT_TEST_SEED
 * repeats a run. ARCH: on the emulator, that one alone; NAME: cases whose names have this text
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/random.h"
#include "kernel_alone.h"
#include "reference/bf16.h"
#include "sparse_attn_bwd_finish.params.h"

enum {
    SCHEDULES = 2,
    DEFAULT_CASES = 20,
    POISON = 0xFF, /* of bf16 and of floats a NaN */
    WIDTHS = 2,
    ITEM_ROWS = 64,
    BLOCK_KEYS = 64,
    LANES = 32,
    GAP = 8, /* elements between rows, between queries and between batches */
    MOST_FAILURES = 1,
    MEMORIES = 8
};

static const int widths[WIDTHS] = {128, 576};

/* Of the slices: those of the first `items` items, of pairs pairs, for so many takers. */
struct shape {
    const char *name;
    int width; /* number of widths[] */
    int groups, group_queries, head_blocks, heads, sides;
    int items, takers;
    int most_keys; /* of a list */
    int batches, tokens;
    int rows, mode, parts;
};

static const struct shape shapes[] = {
    {"one item", 0, 1, 1, 1, 64, 1, 1, 3, 320, 1, 1, 3, FINISH_BF16, 0},
    {"items of one query", 0, 9, 1, 1, 61, 1, 5, 7, 500, 2, 6, 20, FINISH_FP32, 1},
    {"groups of two", 0, 5, 2, 1, 24, 1, 4, 6, 300, 2, 5, 5, FINISH_ADD, 33},
    {"groups of eight", 0, 3, 8, 1, 7, 1, 2, 5, 400, 1, 17, 9, FINISH_BF16, 70},
    {"blocks of heads", 0, 4, 1, 3, 150, 1, 7, 9, 200, 1, 4, 7, FINISH_ADD, 31},
    {"pairs", 0, 4, 1, 2, 72, 2, 3, 8, 700, 3, 2, 6, FINISH_FP32, 32},
    {"pairs of four blocks", 0, 2, 1, 4, 256, 2, 3, 4, 130, 1, 2, 2, FINISH_BF16, 65},
    {"many takers", 0, 3, 1, 1, 64, 1, 2, 19, 1300, 1, 3, 1, FINISH_BF16, 2},
    {"wide rows", 1, 2, 2, 1, 32, 1, 2, 5, 450, 1, 3, 3, FINISH_BF16, 5},
    {"no slices", 1, 0, 1, 1, 3, 1, 0, 0, 0, 2, 1, 30, FINISH_BF16, 40},
};

/* Arrays of the host, and how many there are of each. */
struct problem {
    const struct shape *shape;
    struct sparse_attn_bwd_finish_params params; /* host pointers */
    uint16_t *slices, *dq;
    int *members, *counts;
    float *sums, *parts, *dsink;
    void *dkv, *dkv_before;
    int64_t slice_values, dq_values, sum_values, dkv_bytes;
    void *memory[MEMORIES]; /* the device's */
    int memories;
};

struct test {
    smelt_context *context;
    const struct smelt__kernel *kernels[WIDTHS];
    struct random random;
    struct alone_counts counts;
};

/* ---- problems -------------------------------------------------------------------------------- */

/* Few binary digits apart, so that sums often lie halfway between two numbers of bf16; every
 * seventh is a zero of either sign. */
static uint16_t draw_bf16(struct random *random) {
    const unsigned bits = (unsigned)random_next(random);
    return (uint16_t)(bits % 7 == 0 ? bits >> 3 & 0x8000U
                                    : (bits >> 3 & 0x807fU) |
                                          (126U + (unsigned)random_below(random, 3)) << 7);
}

static float draw_float(struct random *random) {
    return (float)(random_below(random, 1 << 20) - (1 << 19)) / 4096.0F;
}

static void draw_floats(struct random *random, float *values, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        values[i] = draw_float(random);
}

/* Each of the batches' queries is one member's, in any order; the others are of none. */
static void draw_members(struct random *random, int *members, int count, int queries) {
    for (int i = 0; i < count; i++)
        members[i] = i < queries ? i : -1;
    for (int i = count - 1; i > 0; i--) {
        const int other = random_below(random, i + 1), moved = members[i];
        members[i] = members[other];
        members[other] = moved;
    }
}

static void draw_counts(struct random *random, const struct shape *shape, int *counts) {
    for (int i = 0; i < shape->groups; i++) {
        const int count = 1 + random_below(random, shape->most_keys);
        const int kind = random_below(random, 4);
        counts[i] = kind == 0 ? 0 : kind == 1 ? count - count % BLOCK_KEYS : count;
    }
    if (shape->groups > 0)
        counts[0] = shape->most_keys;
}

static struct dq_slices slices_of(const struct shape *shape) {
    const int64_t row = widths[shape->width] + GAP, token = shape->heads * row + GAP;
    return (struct dq_slices){
        .dq_batch_stride = shape->tokens * token + GAP,
        .dq_token_stride = token,
        .dq_head_stride = row,
        .items = shape->items,
        .takers = shape->takers,
        .sides = shape->sides,
        .group_queries = shape->group_queries,
        .head_blocks = shape->head_blocks,
        .member_rows = ITEM_ROWS / shape->group_queries,
        .heads = shape->heads,
        .tokens = shape->tokens,
    };
}

static void *poisoned(int64_t bytes) {
    void *const memory = take((size_t)bytes);
    memset(memory, POISON, (size_t)bytes);
    return memory;
}

static void make_dkv(struct random *random, struct problem *problem) {
    const struct shape *const shape = problem->shape;
    struct sparse_attn_bwd_finish_params *const params = &problem->params;
    params->mode = shape->mode;
    params->batches = shape->batches;
    params->rows = shape->rows;
    params->dkv_row_stride = widths[shape->width] + GAP;
    params->dkv_batch_stride = shape->rows * params->dkv_row_stride + GAP;
    problem->sum_values = (int64_t)shape->batches * shape->rows * widths[shape->width];
    problem->sums = take((size_t)problem->sum_values * sizeof(float));
    draw_floats(random, problem->sums, problem->sum_values);
    const int64_t values = shape->batches * params->dkv_batch_stride;
    problem->dkv_bytes = values * (shape->mode == FINISH_BF16 ? 2 : 4);
    problem->dkv = poisoned(problem->dkv_bytes);
    if (shape->mode == FINISH_ADD)
        draw_floats(random, problem->dkv, values);
    problem->dkv_before = take((size_t)problem->dkv_bytes);
    memcpy(problem->dkv_before, problem->dkv, (size_t)problem->dkv_bytes);
}

static void make_problem(struct random *random, const struct shape *shape,
                         struct problem *problem) {
    memset(problem, 0, sizeof *problem);
    problem->shape = shape;
    const int members = shape->groups * shape->group_queries;
    const int64_t slices = (int64_t)(shape->items + shape->takers) * shape->sides;
    problem->params.dq = slices_of(shape);
    problem->params.heads = shape->heads;
    problem->params.parts = shape->parts;
    problem->slice_values = slices * ITEM_ROWS * widths[shape->width];
    problem->slices = poisoned(problem->slice_values * 2);
    problem->dq_values = shape->batches * problem->params.dq.dq_batch_stride;
    problem->dq = poisoned(problem->dq_values * 2);
    problem->members = take((size_t)members * sizeof(int));
    draw_members(random, problem->members, members, shape->batches * shape->tokens);
    problem->counts = take((size_t)shape->groups * sizeof(int));
    draw_counts(random, shape, problem->counts);
    problem->parts = take((size_t)(shape->parts * shape->heads) * sizeof(float));
    draw_floats(random, problem->parts, (int64_t)shape->parts * shape->heads);
    problem->dsink = poisoned(shape->heads * (int64_t)sizeof(float));
    make_dkv(random, problem);
}

static void free_problem(struct test *test, struct problem *problem) {
    void *const host[] = {problem->slices, problem->dq,   problem->members,
                          problem->counts, problem->sums, problem->parts,
                          problem->dsink,  problem->dkv,  problem->dkv_before};
    for (size_t i = 0; i < sizeof host / sizeof *host; i++)
        free(host[i]);
    while (problem->memories > 0)
        smelt_device_free(test->context, problem->memory[--problem->memories]);
}

/* ---- the reference: sparse_attn_bwd.slices.cuh, sparse_attn_bwd.columns.cuh -------------------
 */

/* How many of an item's key blocks come before a taker's: with all items side by side, each as long
 * as `takers`, a taker has a stretch as long as `items`. */
static int blocks_before(int blocks, int item, const struct shape *shape, int taker) {
    int64_t position = (int64_t)taker * shape->items - (int64_t)item * shape->takers;
    position = position < 0 ? 0 : position > shape->takers ? shape->takers : position;
    return (int)(blocks * position / shape->takers);
}

/* Where a row of dq begins, or -1: none. */
static int64_t dq_row(const struct problem *problem, int item, int row) {
    const struct dq_slices *const dq = &problem->params.dq;
    const int group = item / dq->head_blocks, block = item % dq->head_blocks;
    const int query = problem->members[group * dq->group_queries + row / dq->member_rows];
    const int head = block * ITEM_ROWS + row % dq->member_rows;
    return query < 0 || head >= dq->heads
               ? -1
               : query / dq->tokens * dq->dq_batch_stride +
                     query % dq->tokens * dq->dq_token_stride + head * dq->dq_head_stride;
}

/* Draws the slices that there are of a row, and adds them up. */
static void reference_row(struct random *random, struct problem *problem, int item, int row) {
    const struct shape *const shape = problem->shape;
    const int dqk = widths[shape->width], number = item / shape->sides;
    const int blocks = (problem->counts[item / shape->head_blocks] + BLOCK_KEYS - 1) / BLOCK_KEYS;
    const int64_t to = dq_row(problem, item, row);
    for (int column = 0; column < dqk && blocks > 0 && to >= 0; column++) {
        const int nothing = random_below(random, 9) == 0;
        float sum = 0.0F;
        for (int taker = 0; taker < shape->takers; taker++) {
            const int64_t slice = (int64_t)(taker + number) * shape->sides + item % shape->sides;
            uint16_t *const part = &problem->slices[(slice * ITEM_ROWS + row) * dqk + column];
            if (blocks_before(blocks, number, shape, taker) ==
                blocks_before(blocks, number, shape, taker + 1))
                continue;
            *part = nothing ? 0 : draw_bf16(random);
            sum += smelt__bf16_to_float(*part);
        }
        problem->dq[to + column] = smelt__bf16_from_float(sum);
    }
}

static void reference_dq(struct random *random, struct problem *problem) {
    for (int item = 0; item < problem->shape->items * problem->shape->sides; item++)
        for (int row = 0; row < ITEM_ROWS; row++)
            reference_row(random, problem, item, row);
}

/* Where a column's sum stands in its row. */
static int sum_position(int column) {
    const int i = column % 32 / 8, c = column % 8 / 2, e = column % 2;
    return column / 32 * 32 + 16 * (i / 2) + 4 * c + 2 * (i % 2) + e;
}

static void reference_dkv(struct problem *problem) {
    const struct sparse_attn_bwd_finish_params *const params = &problem->params;
    const int dqk = widths[problem->shape->width];
    for (int64_t i = 0; i < problem->sum_values; i++) {
        const int64_t key = i / dqk;
        const int64_t to = key / params->rows * params->dkv_batch_stride +
                           key % params->rows * params->dkv_row_stride + i % dqk;
        const float sum = problem->sums[key * dqk + sum_position((int)(i % dqk))];
        if (params->mode == FINISH_BF16)
            ((uint16_t *)problem->dkv)[to] = smelt__bf16_from_float(sum);
        else
            ((float *)problem->dkv)[to] =
                params->mode == FINISH_ADD ? ((float *)problem->dkv)[to] + sum : sum;
    }
}

/* A lane adds every 32nd part; then lanes that are 16, 8, 4, 2, 1 apart add up. */
static void reference_dsink(struct problem *problem) {
    const int heads = problem->shape->heads;
    for (int head = 0; head < heads && problem->shape->parts > 0; head++) {
        float sums[LANES] = {0.0F};
        for (int part = 0; part < problem->shape->parts; part++)
            sums[part % LANES] += problem->parts[part * heads + head];
        for (int step = LANES / 2; step > 0; step /= 2)
            for (int lane = 0; lane < step; lane++)
                sums[lane] += sums[lane + step];
        problem->dsink[head] = sums[0];
    }
}

/* ---- the device ------------------------------------------------------------------------------ */

static void *copy(struct test *test, struct problem *problem, const char *name, const void *host,
                  int64_t bytes) {
    void **const device = &problem->memory[problem->memories++];
    if (!upload(test->context, name, host, (size_t)bytes, device))
        exit(1);
    return *device;
}

static struct sparse_attn_bwd_finish_params place_problem(struct test *test,
                                                          struct problem *problem) {
    const struct shape *const shape = problem->shape;
    struct sparse_attn_bwd_finish_params params = problem->params;
    params.dq.slices = copy(test, problem, "slices", problem->slices, problem->slice_values * 2);
    params.dq.members = copy(test, problem, "members", problem->members,
                             (int64_t)shape->groups * shape->group_queries * 4);
    params.dq.counts = copy(test, problem, "counts", problem->counts, (int64_t)shape->groups * 4);
    params.sums = copy(test, problem, "sums", problem->sums, problem->sum_values * 4);
    params.dsink_parts =
        copy(test, problem, "parts", problem->parts, (int64_t)shape->parts * shape->heads * 4);
    return params;
}

/* Whether `bytes` on the device are the host's; prints the first that is not. */
static int same(struct test *test, const char *what, const void *device, const void *wanted,
                int64_t bytes) {
    unsigned char *const got = take((size_t)bytes);
    const unsigned char *const should = wanted;
    int good = works(smelt_device_download(test->context, got, device, (size_t)bytes), "download");
    for (int64_t i = 0; i < bytes && good; i++)
        if (got[i] != should[i]) {
            printf("    byte %lld of %s is %02x, not %02x\n", (long long)i, what, got[i],
                   should[i]);
            good = 0;
        }
    free(got);
    return good;
}

static int run_once(struct test *test, struct problem *problem,
                    struct sparse_attn_bwd_finish_params params, uint32_t blocks) {
    const int before = problem->memories;
    void *const dq = poisoned(problem->dq_values * 2);
    void *const dsink = poisoned(problem->shape->heads * (int64_t)sizeof(float));
    params.dq.dq = copy(test, problem, "dq", dq, problem->dq_values * 2);
    params.dkv = copy(test, problem, "dkv", problem->dkv_before, problem->dkv_bytes);
    float *const to = copy(test, problem, "dsink", dsink, problem->shape->heads * 4);
    params.dsink = problem->shape->parts > 0 ? to : NULL;
    const struct smelt__launch launch = {.blocks = {blocks}, .params = &params};
    const int good = works(smelt__kernel_launch(test->context, test->kernels[problem->shape->width],
                                                &launch, NULL),
                           "launch") &&
                     works(smelt_stream_synchronize(test->context, NULL), "synchronize") &&
                     same(test, "dq", params.dq.dq, problem->dq, problem->dq_values * 2) &&
                     same(test, "dkv", params.dkv, problem->dkv, problem->dkv_bytes) &&
                     same(test, "dsink", to, problem->dsink, problem->shape->heads * 4);
    while (problem->memories > before)
        smelt_device_free(test->context, problem->memory[--problem->memories]);
    free(dq);
    free(dsink);
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
    reference_dq(&test->random, &problem);
    reference_dkv(&problem);
    reference_dsink(&problem);
    const struct sparse_attn_bwd_finish_params params = place_problem(test, &problem);
    const int schedules = schedules_to_run(SCHEDULES, 2);
    int good = 1;
    for (int i = 0; i < schedules && good; i++) {
        smelt__emulator_configure(arch, smelt__schedule_at(seed, i + test->counts.cases % 2), 0);
        good = run_once(test, &problem, params, i == 1 ? 1 : 3);
    }
    test->counts.cases++;
    test->counts.failures += !good;
    if (!good)
        printf("FAILED %s on %s: %d groups of %d queries, %d heads in %d blocks, %d sides, %d "
               "items for %d takers, lists of %d keys; %d batches of %d tokens and %d rows, mode "
               "%d, %d parts; random state %llu\n",
               shape->name, arch, shape->groups, shape->group_queries, shape->heads,
               shape->head_blocks, shape->sides, shape->items, shape->takers, shape->most_keys,
               shape->batches, shape->tokens, shape->rows, shape->mode, shape->parts,
               (unsigned long long)seed);
    free_problem(test, &problem);
}

static struct shape draw_shape(struct random *random) {
    const int group_queries = 1 << random_below(random, 4);
    const int sides = group_queries == 1 ? 1 + random_below(random, 2) : 1;
    const int head_blocks = group_queries == 1 ? sides * (1 + random_below(random, 2)) : 1;
    const int rows = ITEM_ROWS / group_queries * head_blocks;
    const int groups = 1 + random_below(random, 4), items = groups * head_blocks / sides;
    const int sliced = 1 + random_below(random, items);
    return (struct shape){.name = "a random shape",
                          .groups = groups,
                          .group_queries = group_queries,
                          .head_blocks = head_blocks,
                          .heads = rows - random_below(random, ITEM_ROWS / group_queries),
                          .sides = sides,
                          .items = sliced,
                          .takers = sliced + 1 + random_below(random, 12),
                          .most_keys = 1 + random_below(random, 900),
                          .batches = 1,
                          .tokens = 1 + random_below(random, groups * group_queries),
                          .rows = 1 + random_below(random, 9),
                          .mode = random_below(random, 3),
                          .parts = random_below(random, 100)};
}

static int run(void *user, int listed, int random_cases) {
    struct test *const test = user;
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    options.kind = SMELT_CONTEXT_DEVICE;
    if (!works(smelt_context_create(&test->context, &options), "context"))
        return 0;
    int good = 1;
    for (int i = 0; i < WIDTHS && good; i++) {
        char spec[64];
        snprintf(spec, sizeof spec, "sparse_attn_bwd_finish:dqk=%d", widths[i]);
        good = get_kernel(test->context, spec, &test->kernels[i]);
    }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes && listed && good; i++)
        check(test, &shapes[i]);
    for (int i = 0; i < random_cases && good; i++) {
        const struct shape shape = draw_shape(&test->random);
        check(test, &shape);
    }
    smelt_context_destroy(&test->context);
    return good;
}

int main(int argc, char **argv) {
    struct test test = {.random = random_begin("gpu_bwd_finish")};
    return run_alone(argc, argv, DEFAULT_CASES, run, &test, &test.counts);
}
