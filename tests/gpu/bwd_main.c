/*
 * Tests the main kernel of sparse attention's backward pass (deterministic mode) by itself. In a
 * later launch of a call, offsets in lists, masks and statistics exceed 2^31, and with lists far
 * apart, so do offsets in partial rows; the results must equal those with packed arrays. (In an
 * operator's packed workspace such offsets would need too much memory.)
 *
 * Launches of one and two groups must not read other groups' data, although thread blocks that run
 * in step look at neighbouring groups. With `steps`: checks that thread blocks run in step, by
 * their progress counter, and that they process every second list in descending order, by the order
 * of a sum.
 *
 * Runs on the emulator, whose pages are allocated on access.
 *
 *     gpu_bwd_main KERNEL_SPEC [steps]    such as
 *                                 sparse_attn_bwd:heads=24,dqk=512,dv=512,deterministic=1,variant=sm90
 */
#include <math.h>

#include "common/tensor_map.h"
#include "kernel_alone.h"
#include "reference/bf16.h"
#include "sparse_attn_bwd.params.h"

enum {
    GROUPS = 6,
    ROWS = 780,
    WIDTH = 192, /* maximum of a list */
    BLOCK_KEYS = 64,
    SHORT = 61,     /* keys of a list: an odd number, and odd when halved */
    LOOSE_STEP = 2, /* key blocks between two increments of the progress counter */
    CLOSE_STEP = 4,
    ENDED = 1 << 24, /* the increment at a thread block's end */
    FAR_LISTS =
        1 << 20, /* entries between lists: the rows of 512 elements of 5 lists have 2^31 elements */
    FAR_GROUP = 5 << 24, /* a group has at least 32 rows of statistics */
    BLOCKS = 2,
    RUNS = 4
};

/* The number of the first group, the entries between lists, the number of first groups that the
 * launch skips, and how closely thread blocks run in step. */
struct layout {
    int first_group, key_stride, left_out, step;
};

/* Lists that share the keys in some slots with the previous list, for a range of groups; and how
 * closely thread blocks then run in step. */
struct sharing {
    const char *name;
    int begin, end; /* slots */
    int first_group, last_group;
    int left_out, asked; /* of the launch */
    int step;
    const int *counts; /* NULL: SHORT keys each */
};

static const int whole_lists[GROUPS] = {WIDTH, WIDTH, WIDTH, WIDTH, WIDTH, WIDTH};
static const int few_keys[GROUPS] = {7, 7, 7, 7, 7, 7};
static const int long_and_short[GROUPS] = {WIDTH, 9, WIDTH, 9, WIDTH, 9};
/* Entries at the beginning of an empty list are not keys. */
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

/* Launches whose order within lists is checked: the number of skipped groups, how closely thread
 * blocks run in step, and the lengths of lists, which are empty or end in the last of three
 * blocks. */
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

/* From the kernel's plan. */
static struct shape {
    int heads, dqk, dv;
    int group_queries, query_rows, head_blocks, block_heads;
    int maps;
} shape;

/* Inputs on the host, with packed lists. */
static struct problem {
    int tokens;
    uint16_t *q, *kv, *grad_out;
    float *statistics;
    int *members, *counts, *keys;
    unsigned char *masks;
} problem;

/* A run's results; partial rows up to the lists' ends, then zeros. */
struct results {
    uint16_t *dq, *partials;
    unsigned progress;
};

/* ---- the problem ----------------------------------------------------------------------------- */

/* A group's list: any keys, of any of the group's queries. */
static void make_list(int group) {
    static const int counts[GROUPS] = {100, WIDTH, 0, 70, WIDTH, WIDTH};
    const int count = counts[group];
    problem.counts[group] = count;
    for (int i = group * WIDTH; i < (group + 1) * WIDTH; i++) {
        const int there = i < group * WIDTH + count;
        problem.keys[i] = there ? below(ROWS) : -1;
        problem.masks[i] = there ? (unsigned char)(1 + below((1 << shape.group_queries) - 1)) : 0;
    }
}

static void read_plan(const char *spec) {
    shape = (struct shape){
        .heads = plan_constant(spec, "HEADS"),
        .dqk = plan_constant(spec, "DQK"),
        .dv = plan_constant(spec, "DV"),
        .group_queries = plan_constant(spec, "GROUP_QUERIES"),
        .query_rows = plan_constant(spec, "QUERY_ROWS"),
        .head_blocks = plan_constant(spec, "HEAD_BLOCKS"),
        .block_heads = plan_constant(spec, "BLOCK_HEADS"),
        .maps = plan_constant(spec, "TENSOR_MAPS"),
    };
}

static void make_problem(void) {
    const int tokens = problem.tokens = GROUPS * shape.group_queries;
    const size_t heads = (size_t)(tokens * shape.heads);
    problem.q = drawn_bf16(heads * (size_t)shape.dqk, 128);
    problem.kv = drawn_bf16((size_t)(ROWS * shape.dqk), 128);
    problem.grad_out = drawn_bf16(heads * (size_t)shape.dv, 128);
    problem.statistics = take((size_t)(tokens * shape.query_rows) * 2 * sizeof(float));
    for (int i = 0; i < tokens * shape.query_rows; i++) {
        const int there = i % shape.query_rows < shape.heads;
        problem.statistics[2 * i] = there ? 1.0F + (float)(i % 5) : INFINITY;
        problem.statistics[2 * i + 1] = there ? (float)(i % 7) / 8 : 0.0F;
    }
    problem.members = take((size_t)tokens * sizeof(int));
    problem.counts = take(GROUPS * sizeof(int));
    problem.keys = take((size_t)(GROUPS * WIDTH) * sizeof(int));
    problem.masks = take(GROUPS * WIDTH);
    for (int i = 0; i < tokens; i++)
        problem.members[i] = tokens - 1 - i;
    for (int i = 0; i < GROUPS; i++)
        make_list(i);
}

/* ---- a run ----------------------------------------------------------------------------------- */

/* Places an array of `bytes` per group as if `first_group` groups preceded it, which have no
 * memory. */
static void *place_groups(const char *name, const void *host, int64_t bytes, int64_t step,
                          int first_group) {
    char *const placed = copy_rows(name, host, rows_of(GROUPS, bytes, step));
    return (void *)((uintptr_t)placed - (uintptr_t)first_group * (uintptr_t)step);
}

/* Zeroed memory that is allocated on access. */
static void *place_zeros(const char *name, int64_t bytes) {
    return copy_rows(name, NULL, (struct rows){1, (size_t)bytes, 0, 1});
}

static int make_maps(struct sparse_attn_bwd_params *params) {
    const int64_t q[] = {shape.dqk, shape.heads, problem.tokens, 1};
    const int64_t grad_out[] = {shape.dv, shape.heads, problem.tokens, 1};
    const uint32_t heads = (uint32_t)(shape.block_heads / shape.group_queries);
    return !shape.maps || (make_map(params->q, 4, q, heads, &params->q_map) &&
                           make_map(params->grad_out, 4, grad_out, heads, &params->grad_out_map));
}

/* The partial rows up to each list's end. */
static uint16_t *fetch_partials(const struct layout *layout, const char *partials) {
    const int64_t row = 2 * (int64_t)shape.dqk * shape.head_blocks;
    char *const host = filled((size_t)(GROUPS * WIDTH * row), 0);
    for (int64_t i = 0; i < GROUPS; i++) {
        const size_t bytes = (size_t)(problem.counts[i] * row);
        memcpy(host + i * WIDTH * row,
               fetch(partials + i * layout->key_stride * row, packed(bytes)), bytes);
    }
    return (uint16_t *)(void *)host;
}

/* Returns 0 on failure. */
static int run(const struct layout *layout, struct results *results) {
    const int64_t q_rows = (int64_t)problem.tokens * shape.heads, q_bytes = q_rows * shape.dqk * 2;
    const int64_t members = (int64_t)shape.group_queries * 4, keys = layout->key_stride;
    const int64_t rows = (int64_t)shape.group_queries * shape.query_rows * 8;
    const int64_t partial_rows = ((GROUPS - 1) * keys + WIDTH) * shape.head_blocks;
    const int first = layout->first_group;
    struct sparse_attn_bwd_params params = {
        .q = copy("q", problem.q, (size_t)q_bytes),
        .kv = copy("kv", problem.kv, (size_t)(ROWS * shape.dqk * 2)),
        .grad_out = copy("grad_out", problem.grad_out, (size_t)(q_rows * shape.dv * 2)),
        .members = place_groups("members", problem.members, members, members, first),
        .counts = place_groups("counts", problem.counts, 4, 4, first),
        .keys = place_groups("keys", problem.keys, WIDTH * 4, keys * 4, first),
        .masks = place_groups("masks", problem.masks, WIDTH, keys, first),
        .statistics = place_groups("statistics", problem.statistics, rows, rows, first),
        .dq = place_zeros("dq", q_bytes),
        .partials = place_zeros("partials", partial_rows * shape.dqk * 2),
        .progress = place_zeros("progress", 4),
        .q_token_stride = (int64_t)shape.heads * shape.dqk,
        .q_head_stride = shape.dqk,
        .grad_out_token_stride = (int64_t)shape.heads * shape.dv,
        .grad_out_head_stride = shape.dv,
        .dq_token_stride = (int64_t)shape.heads * shape.dqk,
        .dq_head_stride = shape.dqk,
        .kv_row_bytes = (unsigned)shape.dqk * 2,
        .even_batches = 1,
        .tokens = problem.tokens,
        .rows = ROWS,
        .first_group = layout->first_group + layout->left_out,
        .groups = GROUPS - layout->left_out,
        .key_stride = layout->key_stride,
        .step = layout->step,
        .scale = 0.125F,
    };
    if (!make_maps(&params) || !run_kernel(alone.kernels[0], BLOCKS, &params))
        return 0;
    results->dq = fetch(params.dq, packed((size_t)q_bytes));
    results->progress = *(unsigned *)fetch(params.progress, packed(4));
    results->partials = fetch_partials(layout, params.partials);
    return 1;
}

/* ---- judging --------------------------------------------------------------------------------- */

/* Also checks that the results are finite and at most half are zero, since otherwise equality means
 * little. */
static int same_far(const char *what, const uint16_t *near, const uint16_t *far, size_t count) {
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

static int check_far(void) {
    /* With few groups nothing is compared; the emulator reports reads of missing groups. */
    static const struct layout layouts[RUNS] = {{0, WIDTH, 0, STEP_CLOSE},
                                                {FAR_GROUP, FAR_LISTS, 0, STEP_CLOSE},
                                                {0, WIDTH, GROUPS - 1, STEP_CLOSE},
                                                {0, WIDTH, GROUPS - 2, STEP_CLOSE}};
    const size_t dqk = (size_t)shape.dqk;
    struct results results[RUNS] = {{0}};
    int good = 1;
    for (int i = 0; i < RUNS && good; i++)
        good = run(&layouts[i], &results[i]);
    return good &&
           same_far("dq", results[0].dq, results[1].dq,
                    (size_t)(problem.tokens * shape.heads) * dqk) &&
           same_far("partial rows", results[0].partials, results[1].partials,
                    (size_t)(GROUPS * WIDTH * shape.head_blocks) * dqk);
}

/* ---- in step --------------------------------------------------------------------------------- */

static void share_lists(const struct sharing *sharing) {
    for (int group = 0; group < GROUPS; group++) {
        problem.counts[group] = sharing->counts ? sharing->counts[group] : SHORT;
        for (int i = 0; i < WIDTH; i++) {
            const int shared = i >= sharing->begin && i < sharing->end &&
                               group >= sharing->first_group && group <= sharing->last_group;
            const int behind =
                i >= problem.counts[group] &&
                i < (problem.counts[group] + BLOCK_KEYS - 1) / BLOCK_KEYS * BLOCK_KEYS;
            problem.keys[group * WIDTH + i] = behind ? -1 : 4 * i + (shared ? 0 : 1 + group % 2);
            problem.masks[group * WIDTH + i] = 1;
        }
    }
}

/* The final value of the progress counter. Items are dealt to thread blocks in turn, from the last
 * one on. */
static unsigned count_steps(const struct sharing *sharing) {
    const int head_blocks = shape.head_blocks;
    unsigned counted = 0;
    for (int block = 0; block < BLOCKS && sharing->step != STEP_NONE; block++) {
        int own = 0;
        for (int item = GROUPS * head_blocks - 1 - block; item >= sharing->left_out * head_blocks;
             item -= BLOCKS)
            own += (problem.counts[item / head_blocks] + BLOCK_KEYS - 1) / BLOCK_KEYS;
        counted += (unsigned)(sharing->step == STEP_LOOSE ? (own + LOOSE_STEP - 1) / LOOSE_STEP
                                                          : own / CLOSE_STEP);
        counted += ENDED;
    }
    return counted;
}

/* Returns 0 if thread blocks did not run in step. */
static int check_step(const struct sharing *sharing) {
    const struct layout layout = {0, WIDTH, sharing->left_out, sharing->asked};
    struct results results = {0};
    share_lists(sharing);
    const unsigned wanted = count_steps(sharing);
    int good = run(&layout, &results);
    if (good && results.progress != wanted) {
        printf("    %s: thread blocks have counted %#x, not %#x\n", sharing->name, results.progress,
               wanted);
        good = 0;
    }
    return good;
}

static int check_steps(void) {
    int good = 1;
    for (size_t i = 0; i < sizeof sharings / sizeof *sharings && good; i++)
        good = check_step(&sharings[i]);
    return good;
}

/* ---- upwards and downwards ------------------------------------------------------------------- */

enum { FIRST_ROW, LAST_ROW = 2 };

/* Three kinds of kv rows, which add -LARGE, LARGE and 1 to every column of dq but the first, all
 * with the same dS, scale / 2^base: scores are 0, and grad_out is nonzero in the first column only,
 * where all rows have 1. Each block of a list has one kind of rows, so that the last block's
 * contribution remains if it is added last and is lost to rounding if it is added first. */
static void oppose_rows(void) {
    static const float LARGE = 1073741824.0F; /* 2^30: 64 is less than half of its last bit */
    const float values[] = {-LARGE, LARGE, 1.0F};
    const int heads = problem.tokens * shape.heads;
    memset(problem.q, 0, (size_t)(heads * shape.dqk) * sizeof *problem.q);
    memset(problem.grad_out, 0, (size_t)(heads * shape.dv) * sizeof *problem.grad_out);
    for (int i = 0; i < heads; i++)
        problem.grad_out[i * shape.dv] = smelt__bf16_from_float(1.0F);
    for (int i = 0; i < ROWS * shape.dqk; i++)
        problem.kv[i] = smelt__bf16_from_float(
            i % shape.dqk && i / shape.dqk <= LAST_ROW ? values[i / shape.dqk] : 1.0F);
    for (int i = 0; i < problem.tokens * shape.query_rows; i++)
        problem.statistics[2 * i + 1] = 0.0F;
}

static void list_rows(const int *counts) {
    for (int group = 0; group < GROUPS; group++) {
        problem.counts[group] = counts[group];
        for (int i = 0; i < WIDTH; i++) {
            const int there = i < counts[group];
            problem.keys[group * WIDTH + i] = there ? FIRST_ROW + i / BLOCK_KEYS : -1;
            problem.masks[group * WIDTH + i] =
                (unsigned char)(there ? (1 << shape.group_queries) - 1 : 0);
        }
    }
}

/* The number of the last block's rows that dq of a group's first query and head contains, in one
 * column. */
static float times_small(const struct results *results, int group, int column) {
    const int query = problem.members[group * shape.group_queries];
    const float slope = ldexpf(
        0.125F, -(int)problem.statistics[2 * group * shape.group_queries * shape.query_rows]);
    return smelt__bf16_to_float(results->dq[query * shape.heads * shape.dqk + column]) / slope;
}

/* Returns 0 if a list was processed in the wrong order. */
static int check_order(const struct order *order) {
    const struct layout layout = {0, WIDTH, order->left_out, order->step};
    const int columns[] = {1, shape.dqk - 1}; /* of two warpgroups */
    struct results results = {0};
    list_rows(order->counts);
    int good = run(&layout, &results);
    for (int group = order->left_out; group < GROUPS && good; group++) {
        const int turn = (GROUPS - 1 - group) * shape.head_blocks / BLOCKS;
        const int down = order->step != STEP_NONE && turn % 2;
        const int wanted =
            down || order->counts[group] == 0 ? 0 : order->counts[group] - (WIDTH - BLOCK_KEYS);
        for (int i = 0; i < 2 && good; i++) {
            const float got = times_small(&results, group, columns[i]);
            good = got == (float)wanted;
            if (!good)
                printf("    %s: group %d has %g times its last rows in column %d, not %d\n",
                       order->name, group, (double)got, columns[i], wanted);
        }
    }
    return good;
}

static int check_orders(void) {
    int good = 1;
    oppose_rows();
    for (size_t i = 0; i < sizeof orders / sizeof *orders && good; i++)
        good = check_order(&orders[i]);
    return good;
}

static int check(const char *spec, const char *option) {
    const int steps = strcmp(option, "steps") == 0;
    read_plan(spec);
    make_problem();
    return steps ? check_steps() && check_orders() : check_far();
}

int main(int argc, char **argv) {
    return run_on_emulator(argc, argv, "gpu_bwd_main", check,
                           argc > 2 ? "thread blocks keep in step as they should"
                                    : "the same near and far");
}
