/*
 * Tests the main kernel of the indexer's backward pass (deterministic mode) by itself, for
 * properties that an operator's results do not show:
 *
 * - with lists, keys and sums so far apart that offsets exceed 2^31 elements it gives the same
 * results as with packed ones. (In an operator's packed workspace such offsets would need too much
 * memory.) - it uses no other query's q for a missing member. - a thread block whose groups have no
 * keys adds nothing. - each row of dk's sums consists of multiples of the row's grain
 * (common/grain.cuh); the grains are arbitrary here.
 *
 * Runs on the emulator, whose pages are allocated on access.
 *
 *     gpu_indexer_main KERNEL_SPEC    such as
 *                                     indexer_bwd_main:heads=64,dim=64,deterministic=1,variant=sm90
 */
#include <math.h>

#include "common/tensor_map.h"
#include "indexer_bwd_main.params.h"
#include "kernel_alone.h"
#include "reference/bf16.h"

enum {
    GROUPS = 7,
    ROWS = 200,
    WIDTH = 192,         /* maximum of a list */
    FAR_LISTS = 1 << 29, /* entries from one to the next */
    FAR_ROWS = (1 << 18) + 1 /* rows between named rows */,
    BLOCKS = 3,       /* the last one has groups 4 and 1, which have no keys */
    GRAIN_DIGITS = 23 /* digits of a number relative to a row's grain */
};

/* The distances between rows and between lists. */
struct layout {
    int key_stride, row_step;
};

/* Inputs on the host, with packed rows of k and lists. */
static struct problem {
    int tokens, group_queries, block_heads, tiles, maps;
    int heads, dim;
    uint16_t *q, *k;
    float *weights, *grads, *grains;
    int *members, *counts, *runs, *keys;
} problem;

/* A run's results. */
struct results {
    uint16_t *dq;
    float *dweights, *dk;
};

/* ---- the problem ----------------------------------------------------------------------------- */

static void *drawn_floats(size_t count) {
    float *const values = take(count * sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(below(65) - 32) / 64;
    return values;
}

/* A group's list: keys in any order, of members of the first half only, of all, of the second half
 * only. */
static void make_list(int group) {
    const int empty = group == 0 || group % BLOCKS == 1;
    const int last = group == 2 ? 1 : below(64); /* in the last block of keys */
    const int count = empty ? 0 : WIDTH - 64 + last;
    const int half = problem.group_queries / 2, parts = problem.tiles > 1 && !empty;
    const int second = parts ? 20 : 0, first_end = parts ? 90 : count;
    problem.counts[group] = count;
    problem.runs[2 * group] = second;
    problem.runs[2 * group + 1] = first_end;
    for (int i = 0; i < WIDTH; i++) {
        problem.keys[group * WIDTH + i] = i < count ? (group * 31 + i * 7) % ROWS : -1;
        for (int member = 0; member < problem.group_queries; member++)
            if (i >= count || (parts && (member < half ? i >= first_end : i < second)) ||
                problem.members[group * problem.group_queries + member] < 0)
                problem.grads[(group * problem.group_queries + member) * WIDTH + i] = 0.0F;
    }
}

static void make_problem(const char *spec) {
    problem.heads = plan_constant(spec, "HEADS");
    problem.dim = plan_constant(spec, "DIM");
    problem.group_queries = plan_constant(spec, "GROUP_QUERIES");
    problem.block_heads = plan_constant(spec, "BLOCK_HEADS");
    problem.tiles = plan_constant(spec, "GROUP_TILES");
    problem.maps = plan_constant(spec, "TENSOR_MAPS");
    problem.tokens = GROUPS * problem.group_queries;
    const size_t rows = (size_t)(problem.tokens * problem.heads), dim = (size_t)problem.dim;
    problem.q = drawn_bf16(rows * dim, 16);
    problem.k = drawn_bf16(ROWS * dim, 16);
    problem.weights = drawn_floats(rows);
    problem.grads = drawn_floats((size_t)problem.tokens * WIDTH);
    problem.grains = take(ROWS * sizeof(float));
    problem.members = take((size_t)problem.tokens * sizeof(int));
    problem.counts = take(GROUPS * sizeof(int));
    problem.runs = take(2 * GROUPS * sizeof(int));
    problem.keys = take((size_t)(GROUPS * WIDTH) * sizeof(int));
    for (int i = 0; i < problem.tokens; i++)
        problem.members[i] = i;
    /* The last member is missing. To detect the use of another query's q instead, q is infinite for
     * the first queries, which have no keys. */
    problem.members[problem.tokens - 1] = -1;
    for (size_t i = 0; i < (size_t)(problem.group_queries * problem.heads) * dim; i++)
        problem.q[i] = smelt__bf16_from_float(INFINITY);
    for (int i = 0; i < ROWS; i++) /* sums stay below 2^24 times 2^-13 */
        problem.grains[i] = ldexpf(1.0F, GRAIN_DIGITS - 7 - i % 7);
    for (int i = 0; i < GROUPS; i++)
        make_list(i);
}

/* ---- a run ----------------------------------------------------------------------------------- */

/* Zeros. */
static void *place_zeros(const char *name, struct rows rows) {
    void *const device = copy_rows(name, NULL, rows);
    if (!fill_rows(device, 0, rows))
        exit(1);
    return device;
}

/* The lists, whose keys are the distant rows' numbers. */
static const int *place_keys(const struct layout *layout) {
    int *const keys = take((size_t)(GROUPS * WIDTH) * sizeof *keys);
    for (int i = 0; i < GROUPS * WIDTH; i++)
        keys[i] = problem.keys[i] < 0 ? -1 : problem.keys[i] * layout->row_step;
    return copy_rows("keys", keys, rows_of(GROUPS, WIDTH * 4, (int64_t)layout->key_stride * 4));
}

/* Returns 0 on failure. */
static int run(const struct layout *layout, struct results *results) {
    const int64_t row = problem.dim, step = layout->row_step;
    const size_t heads = (size_t)(problem.tokens * problem.heads),
                 q_bytes = heads * (size_t)row * 2;
    const int64_t list = (int64_t)layout->key_stride * 4;
    const int64_t extents[] = {problem.dim, problem.heads, problem.tokens};
    const uint32_t box_heads = (uint32_t)(problem.block_heads / problem.group_queries);
    const struct rows dk = rows_of(ROWS, row * 4, row * 4 * step);
    const struct rows dq = packed(q_bytes), dweights = packed(heads * 4);
    struct indexer_bwd_main_params params = {
        .q = copy("q", problem.q, q_bytes),
        .k = copy_rows("k", problem.k, rows_of(ROWS, row * 2, row * 2 * step)),
        .weights = copy("weights", problem.weights, heads * 4),
        .members = copy("members", problem.members, (size_t)problem.tokens * 4),
        .counts = copy("counts", problem.counts, GROUPS * 4),
        .runs = problem.tiles > 1 ? copy("runs", problem.runs, GROUPS * 8) : NULL,
        .keys = place_keys(layout),
        .grads = copy_rows("grads", problem.grads, rows_of(problem.tokens, WIDTH * 4, list)),
        .dq = place_zeros("dq", dq),
        .dweights = place_zeros("dweights", dweights),
        .dk = place_zeros("dk", dk),
        .grains = copy_rows("grains", problem.grains, rows_of(ROWS, 4, 4 * step)),
        .q_token_stride = row * problem.heads,
        .q_head_stride = row,
        .weights_token_stride = problem.heads,
        .dq_token_stride = row * problem.heads,
        .dq_head_stride = row,
        .dweights_token_stride = problem.heads,
        .k_row_bytes = (unsigned)(row * 2),
        .tokens = problem.tokens,
        .rows = (int)((ROWS - 1) * step + 1),
        .groups = GROUPS,
        .key_stride = layout->key_stride,
    };
    if ((problem.maps && !make_map(params.q, 3, extents, box_heads, &params.q_map)) ||
        !run_kernel(alone.kernels[0], BLOCKS, &params))
        return 0;
    *results = (struct results){fetch(params.dq, dq), fetch(params.dweights, dweights),
                                fetch(params.dk, dk)};
    return 1;
}

/* ---- judging --------------------------------------------------------------------------------- */

static int same_far(const char *what, const void *near, const void *far, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (((const char *)near)[i] != ((const char *)far)[i]) {
            printf("    %s: byte %zu of %zu is another one with everything far apart\n", what, i,
                   bytes);
            return 0;
        }
    return 1;
}

/* Whether rows of dk are multiples of their grains. */
static int are_multiples(const float *dk) {
    for (int row = 0; row < ROWS; row++) {
        const float unit = ldexpf(problem.grains[row], -GRAIN_DIGITS);
        for (int column = 0; column < problem.dim; column++)
            if (fmodf(dk[row * problem.dim + column], unit) != 0.0F) {
                printf("    dk[%d, %d] is %.9g, no multiple of %g\n", row, column,
                       (double)dk[row * problem.dim + column], (double)unit);
                return 0;
            }
    }
    return 1;
}

/* Under one schedule, so that sums have one order. */
static int check(const char *spec, const char *option) {
    static const struct layout layouts[] = {{WIDTH, 1}, {FAR_LISTS, FAR_ROWS}};
    struct results results[2] = {{0}, {0}};
    int good = 1;
    (void)option;
    make_problem(spec);
    for (int i = 0; i < 2 && good; i++)
        good = run(&layouts[i], &results[i]);
    const size_t q_rows = (size_t)(problem.tokens * problem.heads), dim = (size_t)problem.dim;
    return good && same_far("dq", results[0].dq, results[1].dq, q_rows * dim * 2) &&
           same_far("dweights", results[0].dweights, results[1].dweights, q_rows * 4) &&
           same_far("dk", results[0].dk, results[1].dk, ROWS * dim * 4) &&
           are_multiples(results[0].dk);
}

int main(int argc, char **argv) {
    return run_on_emulator(argc, argv, "gpu_indexer_main", check,
                           "the same near and far, multiples of grains");
}
