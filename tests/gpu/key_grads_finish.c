/*
 * Tests the last step of sparse attention's backward pass by itself, bit for bit: dq's rows from
 * their slices, dkv from its sums, dsink from its parts. (The tolerances for an operator's results
 * cannot detect a wrong last bit.) Arguments: kernel_alone.h.
 */
#include "kernel_alone.h"
#include "key_grads_finish.params.h"
#include "reference/bf16.h"

enum {
    POISON = 0xFF, /* NaN as bf16 and as a float */
    WIDTHS = 2,
    ITEM_ROWS = 64,
    BLOCK_KEYS = 64,
    LANES = 32,
    GAP = 8 /* elements between rows, between queries and between batches */
};

static const int widths[WIDTHS] = {128, 576};

/* Slices of the first `items` items (with pairs, of pairs), for so many CTAs. */
struct shape {
    const char *name;
    int width; /* number of widths[] */
    int groups, group_queries, head_blocks, heads, sides;
    int items, slice_ctas;
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
    {"many CTAs", 0, 3, 1, 1, 64, 1, 2, 19, 1300, 1, 3, 1, FINISH_BF16, 2},
    {"wide rows", 1, 2, 2, 1, 32, 1, 2, 5, 450, 1, 3, 3, FINISH_BF16, 5},
    {"no slices", 1, 0, 1, 1, 3, 1, 0, 0, 0, 2, 1, 30, FINISH_BF16, 40},
};

/* Arrays on the host and their lengths. */
static struct problem {
    const struct shape *shape;
    struct key_grads_finish_params params; /* the device's pointers, except outputs */
    uint16_t *slices, *dq;
    int *members, *counts;
    float *sums, *parts, *dsink;
    void *dkv, *dkv_before;
    size_t slice_values, dq_values, sum_values, dkv_bytes;
} problem;

/* ---- problems -------------------------------------------------------------------------------- */

/* Numbers that differ in few binary digits, so that sums are often halfway between two bf16
 * numbers; every seventh is a zero of either sign. */
static uint16_t draw_bf16(void) {
    const unsigned bits = (unsigned)random_next(&alone.random);
    return (uint16_t)(bits % 7 == 0 ? bits >> 3 & 0x8000U
                                    : (bits >> 3 & 0x807fU) | (126U + (unsigned)below(3)) << 7);
}

static float *drawn_floats(size_t count) {
    float *const values = take(count * sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(below(1 << 20) - (1 << 19)) / 4096.0F;
    return values;
}

/* Each query of the batches is one member's, in any order; other members have none. */
static void draw_members(int *members, int count, int queries) {
    for (int i = 0; i < count; i++)
        members[i] = i < queries ? i : -1;
    for (int i = count - 1; i > 0; i--) {
        const int other = below(i + 1), moved = members[i];
        members[i] = members[other];
        members[other] = moved;
    }
}

static void draw_counts(const struct shape *shape, int *counts) {
    for (int i = 0; i < shape->groups; i++) {
        const int count = 1 + below(shape->most_keys);
        const int kind = below(4);
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
        .slice_ctas = shape->slice_ctas,
        .sides = shape->sides,
        .group_queries = shape->group_queries,
        .head_blocks = shape->head_blocks,
        .member_rows = ITEM_ROWS / shape->group_queries,
        .heads = shape->heads,
        .tokens = shape->tokens,
    };
}

static void make_dkv(const struct shape *shape) {
    struct key_grads_finish_params *const params = &problem.params;
    params->mode = shape->mode;
    params->batches = shape->batches;
    params->rows = shape->rows;
    params->dkv_row_stride = widths[shape->width] + GAP;
    params->dkv_batch_stride = shape->rows * params->dkv_row_stride + GAP;
    problem.sum_values = (size_t)(shape->batches * shape->rows * widths[shape->width]);
    problem.sums = drawn_floats(problem.sum_values);
    const size_t values = (size_t)(shape->batches * params->dkv_batch_stride);
    problem.dkv_bytes = values * (shape->mode == FINISH_BF16 ? 2 : 4);
    problem.dkv =
        shape->mode == FINISH_ADD ? drawn_floats(values) : filled(problem.dkv_bytes, POISON);
    problem.dkv_before = memcpy(take(problem.dkv_bytes), problem.dkv, problem.dkv_bytes);
}

static void make_problem(const struct shape *shape) {
    const int members = shape->groups * shape->group_queries;
    const int slices = (shape->items + shape->slice_ctas) * shape->sides;
    problem = (struct problem){.shape = shape};
    problem.params.dq = slices_of(shape);
    problem.params.heads = shape->heads;
    problem.params.parts = shape->parts;
    problem.slice_values = (size_t)(slices * ITEM_ROWS) * (size_t)widths[shape->width];
    problem.slices = filled(problem.slice_values * 2, POISON);
    problem.dq_values = (size_t)(shape->batches * problem.params.dq.dq_batch_stride);
    problem.dq = filled(problem.dq_values * 2, POISON);
    problem.members = take((size_t)members * sizeof(int));
    draw_members(problem.members, members, shape->batches * shape->tokens);
    problem.counts = take((size_t)shape->groups * sizeof(int));
    draw_counts(shape, problem.counts);
    problem.parts = drawn_floats((size_t)(shape->parts * shape->heads));
    problem.dsink = filled((size_t)shape->heads * sizeof(float), POISON);
    make_dkv(shape);
}

/* ---- the reference: sparse_attn_bwd.slices.cuh, sparse_attn_bwd.columns.cuh -------------------
 */

/* The number of an item's key blocks before a CTA's: with all items in a row, each of length
 * `slice_ctas`, a CTA has a range of length `items`. */
static int blocks_before(int blocks, int item, const struct shape *shape, int cta) {
    int64_t position = (int64_t)cta * shape->items - (int64_t)item * shape->slice_ctas;
    position = position < 0 ? 0 : position > shape->slice_ctas ? shape->slice_ctas : position;
    return (int)(blocks * position / shape->slice_ctas);
}

/* The first element of a row of dq; -1: none. */
static int64_t dq_row(int item, int row) {
    const struct dq_slices *const dq = &problem.params.dq;
    const int group = item / dq->head_blocks, block = item % dq->head_blocks;
    const int query = problem.members[group * dq->group_queries + row / dq->member_rows];
    const int head = block * ITEM_ROWS + row % dq->member_rows;
    return query < 0 || head >= dq->heads
               ? -1
               : query / dq->tokens * dq->dq_batch_stride +
                     query % dq->tokens * dq->dq_token_stride + head * dq->dq_head_stride;
}

/* Draws a row's slices and adds them. */
static void reference_row(int item, int row) {
    const struct shape *const shape = problem.shape;
    const int dqk = widths[shape->width], number = item / shape->sides;
    const int blocks = (problem.counts[item / shape->head_blocks] + BLOCK_KEYS - 1) / BLOCK_KEYS;
    const int64_t to = dq_row(item, row);
    for (int column = 0; column < dqk && blocks > 0 && to >= 0; column++) {
        const int nothing = below(9) == 0;
        float sum = 0.0F;
        for (int cta = 0; cta < shape->slice_ctas; cta++) {
            const int64_t slice = (int64_t)(cta + number) * shape->sides + item % shape->sides;
            uint16_t *const part = &problem.slices[(slice * ITEM_ROWS + row) * dqk + column];
            if (blocks_before(blocks, number, shape, cta) ==
                blocks_before(blocks, number, shape, cta + 1))
                continue;
            *part = nothing ? 0 : draw_bf16();
            sum += smelt__bf16_to_float(*part);
        }
        problem.dq[to + column] = smelt__bf16_from_float(sum);
    }
}

static void reference_dq(void) {
    for (int item = 0; item < problem.shape->items * problem.shape->sides; item++)
        for (int row = 0; row < ITEM_ROWS; row++)
            reference_row(item, row);
}

/* The position of a column's sum in its row. */
static int sum_position(int column) {
    const int i = column % 32 / 8, c = column % 8 / 2, e = column % 2;
    return column / 32 * 32 + 16 * (i / 2) + 4 * c + 2 * (i % 2) + e;
}

static void reference_dkv(void) {
    const struct key_grads_finish_params *const params = &problem.params;
    const int dqk = widths[problem.shape->width];
    for (int64_t i = 0; i < (int64_t)problem.sum_values; i++) {
        const int64_t key = i / dqk;
        const int64_t to = key / params->rows * params->dkv_batch_stride +
                           key % params->rows * params->dkv_row_stride + i % dqk;
        const float sum = problem.sums[key * dqk + sum_position((int)(i % dqk))];
        if (params->mode == FINISH_BF16)
            ((uint16_t *)problem.dkv)[to] = smelt__bf16_from_float(sum);
        else
            ((float *)problem.dkv)[to] =
                params->mode == FINISH_ADD ? ((float *)problem.dkv)[to] + sum : sum;
    }
}

/* A lane adds every 32nd part; then lanes at distances 16, 8, 4, 2, 1 are added. */
static void reference_dsink(void) {
    const int heads = problem.shape->heads;
    for (int head = 0; head < heads && problem.shape->parts > 0; head++) {
        float sums[LANES] = {0.0F};
        for (int part = 0; part < problem.shape->parts; part++)
            sums[part % LANES] += problem.parts[part * heads + head];
        for (int step = LANES / 2; step > 0; step /= 2)
            for (int lane = 0; lane < step; lane++)
                sums[lane] += sums[lane + step];
        problem.dsink[head] = sums[0];
    }
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void prepare(const void *of) {
    const struct shape *const shape = of;
    struct key_grads_finish_params *const params = &problem.params;
    const size_t groups = (size_t)shape->groups;
    make_problem(shape);
    reference_dq();
    reference_dkv();
    reference_dsink();
    params->dq.slices = copy("slices", problem.slices, problem.slice_values * 2);
    params->dq.members =
        copy("members", problem.members, groups * (size_t)shape->group_queries * 4);
    params->dq.counts = copy("counts", problem.counts, groups * 4);
    params->sums = copy("sums", problem.sums, problem.sum_values * 4);
    params->dsink_parts =
        copy("parts", problem.parts, (size_t)(shape->parts * shape->heads) * sizeof(float));
}

static int run(const void *of, int turn) {
    const struct shape *const shape = of;
    struct key_grads_finish_params params = problem.params;
    const size_t dq_bytes = problem.dq_values * 2, heads = (size_t)shape->heads;
    void *const dsink = copy("dsink", filled(heads * 4, POISON), heads * 4);
    params.dq.dq = copy("dq", filled(dq_bytes, POISON), dq_bytes);
    params.dkv = copy("dkv", problem.dkv_before, problem.dkv_bytes);
    params.dsink = shape->parts > 0 ? dsink : NULL;
    return run_kernel(alone.kernels[shape->width], turn == 1 ? 1 : 3, &params) &&
           same("dq", params.dq.dq, problem.dq, problem.dq_values, 2) &&
           same("dkv", params.dkv, problem.dkv, problem.dkv_bytes / 2, 2) &&
           same("dsink", dsink, problem.dsink, heads, 4);
}

static void draw_shape(void *of) {
    struct shape *const shape = of;
    const int group_queries = 1 << below(4);
    const int sides = group_queries == 1 ? 1 + below(2) : 1;
    const int head_blocks = group_queries == 1 ? sides * (1 + below(2)) : 1;
    const int rows = ITEM_ROWS / group_queries * head_blocks;
    const int groups = 1 + below(4), items = groups * head_blocks / sides;
    const int sliced = 1 + below(items);
    *shape = (struct shape){.name = shape->name,
                            .groups = groups,
                            .group_queries = group_queries,
                            .head_blocks = head_blocks,
                            .heads = rows - below(ITEM_ROWS / group_queries),
                            .sides = sides,
                            .items = sliced,
                            .slice_ctas = sliced + 1 + below(12),
                            .most_keys = 1 + below(900),
                            .batches = 1,
                            .tokens = 1 + below(groups * group_queries),
                            .rows = 1 + below(9),
                            .mode = below(3),
                            .parts = below(100)};
}

ALONE_TEST("gpu_key_grads_finish", width, parts,
           .specs = {"key_grads_finish:dqk=128", "key_grads_finish:dqk=576"}, .random_cases = 20,
           .schedules = 2)
