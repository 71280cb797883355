/*
 * The main kernel of sparse attention's backward pass by itself, of deterministic mode: as a later
 * launch of a call, whose first group is so far on that places in lists, masks and statistics pass
 * 2^31, and with lists so far apart that those in its partial rows do, it gives what it gives with
 * everything side by side. An operator's are in its workspace, packed, where so many would take
 * more than there is.
 *
 * Launches of one group and of two read nothing that is another one's, either: how thread blocks
 * keep in step is found out from neighbouring groups. With `steps`: whether they keep in step as
 * they should, which no result shows, but how often they have counted themselves in does; and
 * whether they go through every second list downwards then, which the order of a sum shows.
 *
 * On the emulator, whose pages exist when touched.
 *
 *     gpu_bwd_main KERNEL_SPEC [steps]    such as
 *                                 sparse_attn_bwd:heads=24,dqk=512,dv=512,deterministic=1,variant=sm90
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/random.h"
#include "common/tensor_map.h"
#include "kernel_alone.h"
#include "reference/bf16.h"
#include "runtime/tensor_map.h"
#include "sparse_attn_bwd.params.h"

enum {
    GROUPS = 6,
    ROWS = 780,
    WIDTH = 192, /* of a list, at most */
    BLOCK_KEYS = 64,
    SHORT = 61,     /* keys of a list: an odd number, and odd when halved */
    LOOSE_STEP = 2, /* key blocks: how often a thread block counts itself in */
    CLOSE_STEP = 4,
    ENDED = 1 << 24, /* and what it counts at its end */
    FAR_LISTS =
        1 << 20, /* entries from one to the next: 5 lists have 2^31 elements of rows of 512 */
    FAR_GROUP = 5 << 24, /* which has 32 rows of statistics at least */
    MAP_COLUMNS = 64,    /* of a box */
    BLOCKS = 2,
    RUNS = 4,
    MEMORIES = 12
};

/* The number of the first group, entries from one list to the next, how many of the groups the
 * launch leaves out at the front, and how its thread blocks are to keep in step. */
struct layout {
    int first_group, key_stride, left_out, step;
};

/* Lists that share the keys of some places with the one before them, from one group to another; and
 * how thread blocks then keep in step. */
struct sharing {
    const char *name;
    int begin, end; /* places */
    int first_group, last_group;
    int left_out, asked; /* of the launch */
    int step;
    const int *counts; /* NULL: of SHORT keys each */
};

static const int whole_lists[GROUPS] = {WIDTH, WIDTH, WIDTH, WIDTH, WIDTH, WIDTH};
static const int few_keys[GROUPS] = {7, 7, 7, 7, 7, 7};
static const int long_and_short[GROUPS] = {WIDTH, 9, WIDTH, 9, WIDTH, 9};
/* What stands where an empty list would begin is no key of it. */
static const int empty_before[GROUPS] = {0, 1, 0, 1, 1, 1},
                 empty_behind[GROUPS] = {1, 1, 0, 1, 0, 1};

static const struct sharing sharings[] = {
    {"all keys shared", 0, WIDTH, 0, GROUPS, 0, STEP_CLOSE, STEP_LOOSE, whole_lists},
    {"no key shared", 0, 0, 0, GROUPS, 0, STEP_CLOSE, STEP_CLOSE, whole_lists},
    {"no key shared, four groups", 0, 0, 0, GROUPS, 2, STEP_CLOSE, STEP_CLOSE, whole_lists},
    {"the first half shared", 0, 30, 0, GROUPS, 0, STEP_CLOSE, STEP_CLOSE, NULL},
    {"the last half shared", 30, SHORT, 0, GROUPS, 0, STEP_CLOSE, STEP_CLOSE, NULL},
    {"the first three quarters shared", 0, 45, 0, GROUPS, 0, STEP_CLOSE, STEP_LOOSE, NULL},
    {"the last three quarters shared", 15, SHORT, 0, GROUPS, 0, STEP_CLOSE, STEP_LOOSE, NULL},
    {"three quarters in the middle shared", 20, 60, 0, GROUPS, 0, STEP_CLOSE, STEP_LOOSE, NULL},
    {"shared by the first groups", 0, SHORT, 0, 3, 0, STEP_CLOSE, STEP_LOOSE, NULL},
    {"shared by the last groups", 0, SHORT, 1, GROUPS, 0, STEP_CLOSE, STEP_LOOSE, NULL},
    {"shared by half of the groups", 0, SHORT, 2, GROUPS, 0, STEP_CLOSE, STEP_CLOSE, NULL},
    {"two groups, shared", 0, SHORT, 0, GROUPS, GROUPS - 2, STEP_CLOSE, STEP_LOOSE, NULL},
    {"two groups, not shared", 0, SHORT, 0, GROUPS - 2, GROUPS - 2, STEP_CLOSE, STEP_CLOSE, NULL},
    {"one group", 0, SHORT, 0, GROUPS, GROUPS - 1, STEP_CLOSE, STEP_CLOSE, NULL},
    {"loose in any case", 0, 0, 0, GROUPS, 0, STEP_LOOSE, STEP_LOOSE, NULL},
    {"not in step", 0, SHORT, 0, GROUPS, 0, STEP_NONE, STEP_NONE, NULL},
    {"one group, not in step", 0, SHORT, 0, GROUPS, GROUPS - 1, STEP_NONE, STEP_NONE, NULL},
    {"lists behind empty ones", 0, SHORT, 0, GROUPS, 0, STEP_CLOSE, STEP_CLOSE, empty_before},
    {"lists ahead of empty ones", 0, SHORT, 0, GROUPS, 0, STEP_CLOSE, STEP_CLOSE, empty_behind},
    {"three quarters of few keys", 0, 5, 0, GROUPS, 0, STEP_CLOSE, STEP_LOOSE, few_keys},
    {"lists of two lengths", 0, WIDTH, 0, GROUPS, 0, STEP_CLOSE, STEP_CLOSE, long_and_short},
};

/* Of launches whose lists' order is looked at: groups left out at the front, how thread blocks are
 * to keep in step, and lengths of lists, which are empty or end in the last of their three blocks.
 */
struct order {
    const char *name;
    int left_out, step;
    int counts[GROUPS];
};

static const struct order orders[] = {
    {"loose", 0, STEP_LOOSE, {WIDTH, 130, 191, WIDTH, 129, WIDTH}},
    {"close", 0, STEP_CLOSE, {WIDTH, 130, 191, WIDTH, 129, WIDTH}},
    {"not in step", 0, STEP_NONE, {WIDTH, 130, 191, WIDTH, 129, WIDTH}},
    {"some left out", 3, STEP_LOOSE, {WIDTH, 130, 191, WIDTH, 129, WIDTH}},
    {"an empty list between", 0, STEP_LOOSE, {150, 130, 191, 0, 129, WIDTH}},
};

/* Of the kernel's plan. */
struct shape {
    int heads, dqk, dv;
    int group_queries, query_rows, head_blocks, block_heads;
    int maps;
};

/* Inputs on the host, lists side by side. */
struct problem {
    struct shape shape;
    int tokens;
    uint16_t *q, *kv, *grad_out;
    float *statistics;
    int *members, *counts, *keys;
    unsigned char *masks;
};

/* What a run gave; partial rows up to the lists' ends, the rest zeros. */
struct results {
    uint16_t *dq, *partials;
    unsigned progress;
};

struct test {
    smelt_context *context;
    const struct smelt__kernel *kernel;
    void *memory[MEMORIES];
    int memories;
};

/* ---- the problem ----------------------------------------------------------------------------- */

static uint16_t *draw_bf16(struct random *random, size_t count) {
    uint16_t *const values = take(count * sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = smelt__bf16_from_float((float)(random_below(random, 65) - 32) / 128);
    return values;
}

/* A group's list: any keys, of any of the group's queries. */
static void make_list(struct random *random, struct problem *problem, int group) {
    static const int counts[GROUPS] = {100, WIDTH, 0, 70, WIDTH, WIDTH};
    const int count = counts[group];
    problem->counts[group] = count;
    for (int i = group * WIDTH; i < (group + 1) * WIDTH; i++) {
        const int there = i < group * WIDTH + count;
        problem->keys[i] = there ? random_below(random, ROWS) : -1;
        problem->masks[i] =
            there
                ? (unsigned char)(1 + random_below(random, (1 << problem->shape.group_queries) - 1))
                : 0;
    }
}

static struct shape shape_of(const struct smelt__plan *plan) {
    return (struct shape){
        .heads = smelt__plan_constant(plan, "HEADS", NULL),
        .dqk = smelt__plan_constant(plan, "DQK", NULL),
        .dv = smelt__plan_constant(plan, "DV", NULL),
        .group_queries = smelt__plan_constant(plan, "GROUP_QUERIES", NULL),
        .query_rows = smelt__plan_constant(plan, "QUERY_ROWS", NULL),
        .head_blocks = smelt__plan_constant(plan, "HEAD_BLOCKS", NULL),
        .block_heads = smelt__plan_constant(plan, "BLOCK_HEADS", NULL),
        .maps = smelt__plan_constant(plan, "TENSOR_MAPS", NULL),
    };
}

static void make_problem(struct random *random, const struct smelt__plan *plan,
                         struct problem *problem) {
    const struct shape shape = problem->shape = shape_of(plan);
    const int tokens = problem->tokens = GROUPS * shape.group_queries;
    const size_t heads = (size_t)(tokens * shape.heads);
    problem->q = draw_bf16(random, heads * (size_t)shape.dqk);
    problem->kv = draw_bf16(random, (size_t)(ROWS * shape.dqk));
    problem->grad_out = draw_bf16(random, heads * (size_t)shape.dv);
    problem->statistics = take((size_t)(tokens * shape.query_rows) * 2 * sizeof(float));
    for (int i = 0; i < tokens * shape.query_rows; i++) {
        const int there = i % shape.query_rows < shape.heads;
        problem->statistics[2 * i] = there ? 1.0F + (float)(i % 5) : INFINITY;
        problem->statistics[2 * i + 1] = there ? (float)(i % 7) / 8 : 0.0F;
    }
    problem->members = take((size_t)tokens * sizeof(int));
    problem->counts = take(GROUPS * sizeof(int));
    problem->keys = take((size_t)(GROUPS * WIDTH) * sizeof(int));
    problem->masks = take(GROUPS * WIDTH);
    for (int i = 0; i < tokens; i++)
        problem->members[i] = tokens - 1 - i;
    for (int i = 0; i < GROUPS; i++)
        make_list(random, problem, i);
}

static void free_problem(struct problem *problem) {
    void *const arrays[] = {problem->q,          problem->kv,      problem->grad_out,
                            problem->statistics, problem->members, problem->counts,
                            problem->keys,       problem->masks};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free(arrays[i]);
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
    for (int64_t i = 0; i < rows && host; i++)
        if (!works(smelt_device_upload(test->context, device + i * step,
                                       (const char *)host + i * bytes, (size_t)bytes),
                   "upload"))
            exit(1);
    return device;
}

/* What a group has `bytes` of, as if so many groups came before; nothing is there of theirs. */
static void *place_groups(struct test *test, const char *name, const void *host, int64_t bytes,
                          int64_t step, int first_group) {
    char *const placed = place(test, name, host, GROUPS, bytes, step);
    return (void *)((uintptr_t)placed - (uintptr_t)first_group * (uintptr_t)step);
}

static int make_map(struct test *test, const struct problem *problem, const void *rows, int columns,
                    struct tensor_map *map) {
    const struct shape *const shape = &problem->shape;
    const int extents[] = {columns, shape->heads, problem->tokens, 1};
    struct smelt__tensor_box box = {
        .data = rows,
        .element = SMELT__MAP_BF16,
        .swizzle = SMELT__MAP_SWIZZLE_128,
        .dimensions = 4,
        .box = {MAP_COLUMNS, (uint32_t)(shape->block_heads / shape->group_queries), 1, 1},
    };
    unsigned long long stride = 2;
    for (int i = 0; i < 4; i++) {
        box.extents[i] = (unsigned)extents[i];
        box.strides[i] = stride;
        stride *= (unsigned)extents[i];
    }
    return works(smelt__tensor_map_make(test->context, &box, map), "map");
}

/* The partial rows up to each list's end. */
static uint16_t *fetch_partials(struct test *test, const struct problem *problem,
                                const struct layout *layout, const char *partials) {
    const int64_t row = 2 * (int64_t)problem->shape.dqk * problem->shape.head_blocks;
    char *const host = take((size_t)(GROUPS * WIDTH * row));
    memset(host, 0, (size_t)(GROUPS * WIDTH * row));
    for (int64_t i = 0; i < GROUPS; i++)
        if (!works(smelt_device_download(test->context, host + i * WIDTH * row,
                                         partials + i * layout->key_stride * row,
                                         (size_t)(problem->counts[i] * row)),
                   "download"))
            exit(1);
    return (uint16_t *)(void *)host;
}

/* Returns 0 when it failed. */
static int run(struct test *test, const struct problem *problem, const struct layout *layout,
               struct results *results) {
    const struct shape *const shape = &problem->shape;
    const int64_t q_rows = (int64_t)problem->tokens * shape->heads,
                  q_bytes = q_rows * shape->dqk * 2;
    const int64_t members = (int64_t)shape->group_queries * 4, first = layout->first_group;
    const int64_t rows = (int64_t)shape->group_queries * shape->query_rows * 8;
    const int64_t partial_rows =
        ((int64_t)(GROUPS - 1) * layout->key_stride + WIDTH) * shape->head_blocks;
    struct sparse_attn_bwd_params params = {
        .q = place(test, "q", problem->q, 1, q_bytes, 0),
        .kv = place(test, "kv", problem->kv, 1, (int64_t)ROWS * shape->dqk * 2, 0),
        .grad_out = place(test, "grad_out", problem->grad_out, 1, q_rows * shape->dv * 2, 0),
        .members = place_groups(test, "members", problem->members, members, members, (int)first),
        .counts = place_groups(test, "counts", problem->counts, 4, 4, (int)first),
        .keys = place_groups(test, "keys", problem->keys, WIDTH * 4,
                             (int64_t)layout->key_stride * 4, (int)first),
        .masks = place_groups(test, "masks", problem->masks, WIDTH, layout->key_stride, (int)first),
        .statistics = place_groups(test, "statistics", problem->statistics, rows, rows, (int)first),
        .dq = place(test, "dq", NULL, 1, q_bytes, 0),
        .partials = place(test, "partials", NULL, 1, partial_rows * shape->dqk * 2, 0),
        .progress = place(test, "progress", NULL, 1, 4, 0),
        .q_token_stride = (int64_t)shape->heads * shape->dqk,
        .q_head_stride = shape->dqk,
        .grad_out_token_stride = (int64_t)shape->heads * shape->dv,
        .grad_out_head_stride = shape->dv,
        .dq_token_stride = (int64_t)shape->heads * shape->dqk,
        .dq_head_stride = shape->dqk,
        .kv_row_bytes = (unsigned)shape->dqk * 2,
        .even_batches = 1,
        .tokens = problem->tokens,
        .rows = ROWS,
        .first_group = layout->first_group + layout->left_out,
        .groups = GROUPS - layout->left_out,
        .key_stride = layout->key_stride,
        .step = layout->step,
        .scale = 0.125F,
    };
    const struct smelt__launch launch = {.blocks = {BLOCKS}, .params = &params};
    if ((shape->maps &&
         (!make_map(test, problem, params.q, shape->dqk, &params.q_map) ||
          !make_map(test, problem, params.grad_out, shape->dv, &params.grad_out_map))) ||
        !works(smelt__kernel_launch(test->context, test->kernel, &launch, NULL), "launch") ||
        !works(smelt_stream_synchronize(test->context, NULL), "synchronize"))
        return 0;
    results->dq = take((size_t)q_bytes);
    if (!works(smelt_device_download(test->context, results->dq, params.dq, (size_t)q_bytes),
               "download") ||
        !works(smelt_device_download(test->context, &results->progress, params.progress,
                                     sizeof results->progress),
               "download"))
        return 0;
    results->partials = fetch_partials(test, problem, layout, params.partials);
    while (test->memories > 0)
        smelt_device_free(test->context, test->memory[--test->memories]);
    return 1;
}

/* ---- judging --------------------------------------------------------------------------------- */

/* And that they are numbers, not all of which are zero: else anything would be the same. */
static int same(const char *what, const uint16_t *near, const uint16_t *far, size_t count) {
    size_t zeros = 0;
    for (size_t i = 0; i < count; i++) {
        if (near[i] != far[i] || !isfinite(smelt__bf16_to_float(near[i]))) {
            printf("    %s: number %zu of %zu is %g, and %g with everything far apart\n", what, i,
                   count, (double)smelt__bf16_to_float(near[i]),
                   (double)smelt__bf16_to_float(far[i]));
            return 0;
        }
        zeros += near[i] == 0;
    }
    if (zeros * 2 > count)
        printf("    %s: %zu of %zu are zero\n", what, zeros, count);
    return zeros * 2 <= count;
}

static int check(struct test *test, const struct problem *problem) {
    /* Of few groups nothing is compared: the emulator says what is read where no group is. */
    static const struct layout layouts[RUNS] = {{0, WIDTH, 0, STEP_CLOSE},
                                                {FAR_GROUP, FAR_LISTS, 0, STEP_CLOSE},
                                                {0, WIDTH, GROUPS - 1, STEP_CLOSE},
                                                {0, WIDTH, GROUPS - 2, STEP_CLOSE}};
    const size_t dqk = (size_t)problem->shape.dqk;
    struct results results[RUNS] = {{0}};
    int good = 1;
    for (int i = 0; i < RUNS && good; i++)
        good = run(test, problem, &layouts[i], &results[i]);
    good = good &&
           same("dq", results[0].dq, results[1].dq,
                (size_t)(problem->tokens * problem->shape.heads) * dqk) &&
           same("partial rows", results[0].partials, results[1].partials,
                (size_t)(GROUPS * WIDTH * problem->shape.head_blocks) * dqk);
    for (int i = 0; i < RUNS; i++) {
        free(results[i].dq);
        free(results[i].partials);
    }
    return good;
}

/* ---- in step --------------------------------------------------------------------------------- */

static void share_lists(struct problem *problem, const struct sharing *sharing) {
    for (int group = 0; group < GROUPS; group++) {
        problem->counts[group] = sharing->counts ? sharing->counts[group] : SHORT;
        for (int i = 0; i < WIDTH; i++) {
            const int shared = i >= sharing->begin && i < sharing->end &&
                               group >= sharing->first_group && group <= sharing->last_group;
            const int behind =
                i >= problem->counts[group] &&
                i < (problem->counts[group] + BLOCK_KEYS - 1) / BLOCK_KEYS * BLOCK_KEYS;
            problem->keys[group * WIDTH + i] = behind ? -1 : 4 * i + (shared ? 0 : 1 + group % 2);
            problem->masks[group * WIDTH + i] = 1;
        }
    }
}

/* What thread blocks have counted when all have ended: items are theirs in turn, from the last on.
 */
static unsigned count_steps(const struct problem *problem, const struct sharing *sharing) {
    const int head_blocks = problem->shape.head_blocks;
    unsigned counted = 0;
    for (int block = 0; block < BLOCKS && sharing->step != STEP_NONE; block++) {
        int own = 0;
        for (int item = GROUPS * head_blocks - 1 - block; item >= sharing->left_out * head_blocks;
             item -= BLOCKS)
            own += (problem->counts[item / head_blocks] + BLOCK_KEYS - 1) / BLOCK_KEYS;
        counted += (unsigned)(sharing->step == STEP_LOOSE ? (own + LOOSE_STEP - 1) / LOOSE_STEP
                                                          : own / CLOSE_STEP);
        counted += ENDED;
    }
    return counted;
}

/* Returns 0 when thread blocks did not keep in step as they should. */
static int check_step(struct test *test, struct problem *problem, const struct sharing *sharing) {
    const struct layout layout = {0, WIDTH, sharing->left_out, sharing->asked};
    struct results results = {0};
    share_lists(problem, sharing);
    const unsigned wanted = count_steps(problem, sharing);
    int good = run(test, problem, &layout, &results);
    if (good && results.progress != wanted) {
        printf("    %s: thread blocks have counted %#x, not %#x\n", sharing->name, results.progress,
               wanted);
        good = 0;
    }
    free(results.dq);
    free(results.partials);
    return good;
}

static int check_steps(struct test *test, struct problem *problem) {
    int good = 1;
    for (size_t i = 0; i < sizeof sharings / sizeof *sharings && good; i++)
        good = check_step(test, problem, &sharings[i]);
    return good;
}

/* ---- upwards and downwards ------------------------------------------------------------------- */

enum { FIRST_ROW, LAST_ROW = 2 };

/* Rows of kv that take LARGE from, add it to and add 1 to every column of dq but the first, all
 * with the same slope, scale / 2^base: scores are 0, and grad_out meets the first column alone,
 * where all rows have 1. A list's blocks are of one kind each, so that what the last adds is there
 * in the end when it came last, and was cut off beside LARGE when it came first. */
static void oppose_rows(struct problem *problem) {
    static const float LARGE = 1073741824.0F; /* 2^30: 64 rows of 1 are less than its last bit */
    const float values[] = {-LARGE, LARGE, 1.0F};
    const struct shape *const shape = &problem->shape;
    const int heads = problem->tokens * shape->heads;
    memset(problem->q, 0, (size_t)(heads * shape->dqk) * sizeof *problem->q);
    memset(problem->grad_out, 0, (size_t)(heads * shape->dv) * sizeof *problem->grad_out);
    for (int i = 0; i < heads; i++)
        problem->grad_out[i * shape->dv] = smelt__bf16_from_float(1.0F);
    for (int i = 0; i < ROWS * shape->dqk; i++)
        problem->kv[i] = smelt__bf16_from_float(
            i % shape->dqk && i / shape->dqk <= LAST_ROW ? values[i / shape->dqk] : 1.0F);
    for (int i = 0; i < problem->tokens * shape->query_rows; i++)
        problem->statistics[2 * i + 1] = 0.0F;
}

static void list_rows(struct problem *problem, const int *counts) {
    for (int group = 0; group < GROUPS; group++) {
        problem->counts[group] = counts[group];
        for (int i = 0; i < WIDTH; i++) {
            const int there = i < counts[group];
            problem->keys[group * WIDTH + i] = there ? FIRST_ROW + i / BLOCK_KEYS : -1;
            problem->masks[group * WIDTH + i] =
                (unsigned char)(there ? (1 << problem->shape.group_queries) - 1 : 0);
        }
    }
}

/* What dq of a group's first query and head has in a column: how often its last block's rows. */
static float times_small(const struct problem *problem, const struct results *results, int group,
                         int column) {
    const struct shape *const shape = &problem->shape;
    const int query = problem->members[group * shape->group_queries];
    const float slope = ldexpf(
        0.125F, -(int)problem->statistics[2 * group * shape->group_queries * shape->query_rows]);
    return smelt__bf16_to_float(results->dq[query * shape->heads * shape->dqk + column]) / slope;
}

/* Returns 0 when a list was not gone through as it should. */
static int check_order(struct test *test, struct problem *problem, const struct order *order) {
    const struct layout layout = {0, WIDTH, order->left_out, order->step};
    const int columns[] = {1, problem->shape.dqk - 1}; /* of two warpgroups */
    struct results results = {0};
    list_rows(problem, order->counts);
    int good = run(test, problem, &layout, &results);
    for (int group = order->left_out; group < GROUPS && good; group++) {
        const int turn = (GROUPS - 1 - group) * problem->shape.head_blocks / BLOCKS;
        const int down = order->step != STEP_NONE && turn % 2;
        const int wanted =
            down || order->counts[group] == 0 ? 0 : order->counts[group] - (WIDTH - BLOCK_KEYS);
        for (int i = 0; i < 2 && good; i++) {
            const float got = times_small(problem, &results, group, columns[i]);
            good = got == (float)wanted;
            if (!good)
                printf("    %s: group %d has %g times its last rows in column %d, not %d\n",
                       order->name, group, (double)got, columns[i], wanted);
        }
    }
    free(results.dq);
    free(results.partials);
    return good;
}

static int check_orders(struct test *test, struct problem *problem) {
    int good = 1;
    oppose_rows(problem);
    for (size_t i = 0; i < sizeof orders / sizeof *orders && good; i++)
        good = check_order(test, problem, &orders[i]);
    return good;
}

int main(int argc, char **argv) {
    static const char arch[] = "sm_90a";
    struct random random = random_begin("gpu_bwd_main");
    struct test test = {0};
    struct problem problem = {0};
    struct smelt__plan plan;
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    const int steps = argc == 3 && strcmp(argv[2], "steps") == 0;
    if ((argc != 2 && !steps) || !smelt__emulator()) {
        fprintf(stderr, "usage: gpu_bwd_main KERNEL_SPEC [steps], on the emulator\n");
        return 2;
    }
    options.kind = SMELT_CONTEXT_DEVICE;
    smelt__emulator_configure(arch, smelt__schedule_at(0, 0), 0);
    int good = works(smelt_context_create(&test.context, &options), "context") &&
               works(smelt__plan_from_text(argv[1], arch, &plan), argv[1]) &&
               get_kernel(test.context, argv[1], &test.kernel);
    if (good) {
        make_problem(&random, &plan, &problem);
        good = steps ? check_steps(&test, &problem) && check_orders(&test, &problem)
                     : check(&test, &problem);
        free_problem(&problem);
    }
    smelt_context_destroy(&test.context);
    printf("%s: %s\n", argv[1],
           !good   ? "FAILED"
           : steps ? "thread blocks keep in step as they should"
                   : "the same near and far");
    return !good;
}
