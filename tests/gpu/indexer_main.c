/*
 * The main kernel of the indexer's backward pass by itself, of deterministic mode, for what no
 * operator's results show:
 *
 * - with lists, keys and sums so far apart that their places pass 2^31 elements it gives what it
 *   gives with all of them side by side. An operator's lists and sums are in its workspace, packed,
 *   where so many would take more than there is;
 * - nothing of another query's q is taken for a member's that is not there;
 * - a thread block none of whose groups has a key adds nothing;
 * - each row of dk's sums is made of multiples of the row's own power of two (common/grain.cuh),
 *   whose grains are anything here.
 *
 * On the emulator, whose pages exist when touched.
 *
 *     gpu_indexer_main KERNEL_SPEC    such as
 *                                     indexer_bwd_main:heads=64,dim=64,deterministic=1,variant=sm90
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/random.h"
#include "common/tensor_map.h"
#include "indexer_bwd_main.params.h"
#include "kernel_alone.h"
#include "reference/bf16.h"
#include "runtime/tensor_map.h"

enum {
    GROUPS = 7,
    ROWS = 200,
    WIDTH = 192,         /* of a list, at most */
    FAR_LISTS = 1 << 29, /* entries from one to the next */
    FAR_ROWS = (1 << 18) + 1 /* rows from one that is named to the next */,
    BLOCKS = 3,        /* the last one takes groups 4 and 1, which have no keys */
    GRAIN_DIGITS = 23, /* of a row's power of two, the grain */
    UNWRITTEN = 0xff,
    MEMORIES = 12
};

/* Where things are: rows and entries from one to the next. */
struct layout {
    int key_stride, row_step;
};

/* Inputs on the host, rows of k and lists side by side. */
struct problem {
    int tokens, group_queries, block_heads, tiles, maps;
    int heads, dim;
    uint16_t *q, *k;
    float *weights, *grads, *grains;
    int *members, *counts, *runs, *keys;
};

/* What a run gave. */
struct results {
    uint16_t *dq;
    float *dweights, *dk;
};

struct test {
    smelt_context *context;
    const struct smelt__kernel *kernel;
    void *memory[MEMORIES];
    int memories;
};

/* ---- the problem ----------------------------------------------------------------------------- */

static void *draw_bf16(struct random *random, size_t count) {
    uint16_t *const values = take(count * sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = smelt__bf16_from_float((float)(random_below(random, 65) - 32) / 16);
    return values;
}

static void *draw_floats(struct random *random, size_t count) {
    float *const values = take(count * sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(random_below(random, 65) - 32) / 64;
    return values;
}

/* A group's list: keys in any order, of members of the first half alone, of all, of the second
 * alone. */
static void make_list(struct random *random, struct problem *problem, int group) {
    const int empty = group == 0 || group % BLOCKS == 1;
    const int alone = group == 2 ? 1 : random_below(random, 64); /* in the last block of keys */
    const int count = empty ? 0 : WIDTH - 64 + alone;
    const int half = problem->group_queries / 2, parts = problem->tiles > 1 && !empty;
    const int second = parts ? 20 : 0, first_end = parts ? 90 : count;
    problem->counts[group] = count;
    problem->runs[2 * group] = second;
    problem->runs[2 * group + 1] = first_end;
    for (int i = 0; i < WIDTH; i++) {
        problem->keys[group * WIDTH + i] = i < count ? (group * 31 + i * 7) % ROWS : -1;
        for (int member = 0; member < problem->group_queries; member++)
            if (i >= count || (parts && (member < half ? i >= first_end : i < second)) ||
                problem->members[group * problem->group_queries + member] < 0)
                problem->grads[(group * problem->group_queries + member) * WIDTH + i] = 0.0F;
    }
}

static void make_problem(struct random *random, const struct smelt__plan *plan,
                         struct problem *problem) {
    problem->heads = smelt__plan_constant(plan, "HEADS", NULL);
    problem->dim = smelt__plan_constant(plan, "DIM", NULL);
    problem->group_queries = smelt__plan_constant(plan, "GROUP_QUERIES", NULL);
    problem->block_heads = smelt__plan_constant(plan, "BLOCK_HEADS", NULL);
    problem->tiles = smelt__plan_constant(plan, "GROUP_TILES", NULL);
    problem->maps = smelt__plan_constant(plan, "TENSOR_MAPS", NULL);
    problem->tokens = GROUPS * problem->group_queries;
    const size_t rows = (size_t)(problem->tokens * problem->heads), dim = (size_t)problem->dim;
    problem->q = draw_bf16(random, rows * dim);
    problem->k = draw_bf16(random, ROWS * dim);
    problem->weights = draw_floats(random, rows);
    problem->grads = draw_floats(random, (size_t)problem->tokens * WIDTH);
    problem->grains = take(ROWS * sizeof(float));
    problem->members = take((size_t)problem->tokens * sizeof(int));
    problem->counts = take(GROUPS * sizeof(int));
    problem->runs = take(2 * GROUPS * sizeof(int));
    problem->keys = take((size_t)(GROUPS * WIDTH) * sizeof(int));
    for (int i = 0; i < problem->tokens; i++)
        problem->members[i] = i;
    /* The last member is not there; were another query's q taken for its, nothing of that would
     * show but this: q is infinite of the first queries, which have no keys. */
    problem->members[problem->tokens - 1] = -1;
    for (size_t i = 0; i < (size_t)(problem->group_queries * problem->heads) * dim; i++)
        problem->q[i] = smelt__bf16_from_float(INFINITY);
    for (int i = 0; i < ROWS; i++) /* sums stay below 2^24 times 2^-13 */
        problem->grains[i] = ldexpf(1.0F, GRAIN_DIGITS - 7 - i % 7);
    for (int i = 0; i < GROUPS; i++)
        make_list(random, problem, i);
}

/* ---- a run ----------------------------------------------------------------------------------- */

/* Rows of so many bytes, `step` bytes from one to the next; from the host, where they are side by
 * side, or zeros of NULL. */
static void *place(struct test *test, const char *name, const void *host, int64_t rows,
                   int64_t bytes, int64_t step) {
    const struct emu_interface *const emulator = smelt__emulator();
    char *const device = (char *)(uintptr_t)emulator->reserve((size_t)((rows - 1) * step + bytes));
    if (!device)
        exit(1);
    test->memory[test->memories++] = device;
    emulator->name((uint64_t)(uintptr_t)device, name);
    for (int64_t i = 0; i < rows; i++) {
        char *const row = device + i * step;
        if (host ? !works(smelt_device_upload(test->context, row, (const char *)host + i * bytes,
                                              (size_t)bytes),
                          "upload")
                 : !works(smelt_device_fill(test->context, row, 0, (size_t)bytes), "fill"))
            exit(1);
    }
    return device;
}

static void *fetch(struct test *test, const void *device, int64_t rows, int64_t bytes,
                   int64_t step) {
    char *const host = take((size_t)(rows * bytes));
    for (int64_t i = 0; i < rows; i++)
        if (!works(smelt_device_download(test->context, host + i * bytes,
                                         (const char *)device + i * step, (size_t)bytes),
                   "download"))
            exit(1);
    return host;
}

/* The lists, their keys where their rows are. */
static const int *place_keys(struct test *test, const struct problem *problem,
                             const struct layout *layout) {
    int *const keys = take((size_t)(GROUPS * WIDTH) * sizeof *keys);
    for (int i = 0; i < GROUPS * WIDTH; i++)
        keys[i] = problem->keys[i] < 0 ? -1 : problem->keys[i] * layout->row_step;
    const int *const placed =
        place(test, "keys", keys, GROUPS, WIDTH * 4, (int64_t)layout->key_stride * 4);
    free(keys);
    return placed;
}

static int make_map(struct test *test, const struct problem *problem,
                    struct indexer_bwd_main_params *params) {
    const int64_t extents[] = {problem->dim, problem->heads, problem->tokens};
    const int64_t strides[] = {0, params->q_head_stride, params->q_token_stride};
    struct smelt__tensor_box box = {
        .data = params->q,
        .element = SMELT__MAP_BF16,
        .swizzle = SMELT__MAP_SWIZZLE_128,
        .dimensions = 3,
        .box = {64, (uint32_t)(problem->block_heads / problem->group_queries), 1},
    };
    for (int i = 0; i < 3; i++) {
        box.extents[i] = (uint64_t)extents[i];
        box.strides[i] = (uint64_t)strides[i] * 2;
    }
    return works(smelt__tensor_map_make(test->context, &box, &params->q_map), "map");
}

/* Returns 0 when it failed. */
static int run(struct test *test, const struct problem *problem, const struct layout *layout,
               struct results *results) {
    const int64_t row = problem->dim, step = layout->row_step;
    const int64_t q_rows = (int64_t)problem->tokens * problem->heads;
    const int64_t list = (int64_t)layout->key_stride * 4;
    struct indexer_bwd_main_params params = {
        .q = place(test, "q", problem->q, 1, q_rows * row * 2, 0),
        .k = place(test, "k", problem->k, ROWS, row * 2, row * 2 * step),
        .weights = place(test, "weights", problem->weights, 1, q_rows * 4, 0),
        .members = place(test, "members", problem->members, 1, problem->tokens * 4, 0),
        .counts = place(test, "counts", problem->counts, 1, GROUPS * 4, 0),
        .runs = problem->tiles > 1 ? place(test, "runs", problem->runs, 1, GROUPS * 8, 0) : NULL,
        .keys = place_keys(test, problem, layout),
        .grads = place(test, "grads", problem->grads, problem->tokens, WIDTH * 4, list),
        .dq = place(test, "dq", NULL, 1, q_rows * row * 2, 0),
        .dweights = place(test, "dweights", NULL, 1, q_rows * 4, 0),
        .dk = place(test, "dk", NULL, ROWS, row * 4, row * 4 * step),
        .grains = place(test, "grains", problem->grains, ROWS, 4, 4 * step),
        .q_token_stride = row * problem->heads,
        .q_head_stride = row,
        .weights_token_stride = problem->heads,
        .dq_token_stride = row * problem->heads,
        .dq_head_stride = row,
        .dweights_token_stride = problem->heads,
        .k_row_bytes = (unsigned)(row * 2),
        .tokens = problem->tokens,
        .rows = (int)((ROWS - 1) * step + 1),
        .groups = GROUPS,
        .key_stride = layout->key_stride,
    };
    const struct smelt__launch launch = {.blocks = {BLOCKS}, .params = &params};
    if ((problem->maps && !make_map(test, problem, &params)) ||
        !works(smelt__kernel_launch(test->context, test->kernel, &launch, NULL), "launch") ||
        !works(smelt_stream_synchronize(test->context, NULL), "synchronize"))
        return 0;
    results->dq = fetch(test, params.dq, 1, q_rows * row * 2, 0);
    results->dweights = fetch(test, params.dweights, 1, q_rows * 4, 0);
    results->dk = fetch(test, params.dk, ROWS, row * 4, row * 4 * step);
    while (test->memories > 0)
        smelt_device_free(test->context, test->memory[--test->memories]);
    return 1;
}

/* ---- judging --------------------------------------------------------------------------------- */

static int same(const char *what, const void *near, const void *far, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (((const char *)near)[i] != ((const char *)far)[i]) {
            printf("    %s: byte %zu of %zu is another one with everything far apart\n", what, i,
                   bytes);
            return 0;
        }
    return 1;
}

/* Whether rows of dk are made of multiples of what their grains say. */
static int are_multiples(const struct problem *problem, const float *dk) {
    for (int row = 0; row < ROWS; row++) {
        const float unit = ldexpf(problem->grains[row], -GRAIN_DIGITS);
        for (int column = 0; column < problem->dim; column++)
            if (fmodf(dk[row * problem->dim + column], unit) != 0.0F) {
                printf("    dk[%d, %d] is %.9g, no multiple of %g\n", row, column,
                       (double)dk[row * problem->dim + column], (double)unit);
                return 0;
            }
    }
    return 1;
}

static void free_results(struct results *results) {
    free(results->dq);
    free(results->dweights);
    free(results->dk);
}

static void free_problem(struct problem *problem) {
    void *const arrays[] = {problem->q,      problem->k,      problem->weights,
                            problem->grads,  problem->grains, problem->members,
                            problem->counts, problem->runs,   problem->keys};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free(arrays[i]);
}

/* Under one schedule, so that sums are taken in one order. */
static int check(struct test *test, const struct problem *problem) {
    static const struct layout layouts[] = {{WIDTH, 1}, {FAR_LISTS, FAR_ROWS}};
    struct results results[2] = {{0}, {0}};
    int good = 1;
    for (int i = 0; i < 2 && good; i++)
        good = run(test, problem, &layouts[i], &results[i]);
    const size_t q_rows = (size_t)(problem->tokens * problem->heads), dim = (size_t)problem->dim;
    good = good && same("dq", results[0].dq, results[1].dq, q_rows * dim * 2) &&
           same("dweights", results[0].dweights, results[1].dweights, q_rows * 4) &&
           same("dk", results[0].dk, results[1].dk, ROWS * dim * 4) &&
           are_multiples(problem, results[0].dk);
    free_results(&results[0]);
    free_results(&results[1]);
    return good;
}

int main(int argc, char **argv) {
    static const char arch[] = "sm_90a";
    struct random random = random_begin("gpu_indexer_main");
    struct test test = {0};
    struct problem problem = {0};
    struct smelt__plan plan;
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    if (argc != 2 || !smelt__emulator()) {
        fprintf(stderr, "usage: gpu_indexer_main KERNEL_SPEC, on the emulator\n");
        return 2;
    }
    options.kind = SMELT_CONTEXT_DEVICE;
    smelt__emulator_configure(arch, smelt__schedule_at(0, 0), 0);
    int good = works(smelt_context_create(&test.context, &options), "context") &&
               works(smelt__plan_from_text(argv[1], arch, &plan), argv[1]) &&
               get_kernel(test.context, argv[1], &test.kernel);
    if (good) {
        make_problem(&random, &plan, &problem);
        good = check(&test, &problem);
        free_problem(&problem);
    }
    smelt_context_destroy(&test.context);
    printf("%s: %s\n", argv[1], good ? "the same near and far, multiples of grains" : "FAILED");
    return !good;
}
