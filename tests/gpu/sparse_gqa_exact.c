/* sparse_gqa's deterministic dk and dv as exact sums (templates/common/grain.cuh): their units, and infinities. */
#include "sparse_gqa_exact.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/sparse_gqa_table.h"
#include "reference/bf16.h"

/* The exponent of the largest power of two that divides all columns of a row. */
static int unit_exponent(const float *row, int columns) {
    int exponent = INT_MAX;
    for (int i = 0; i < columns; i++) {
        int own = INT_MAX;
        if (row[i] != 0) {
            const int64_t digits = (int64_t)fabs(ldexp(frexp((double)row[i], &own), 24));
            own += __builtin_ctzll((unsigned long long)digits) - 24;
        }
        exponent = own < exponent ? own : exponent;
    }
    return exponent;
}

/* Exact sums: dv's first column is the bound of its row, as all its addends are positive and the largest of their
 * rows. The unit of a row, 2^-24 of the power of two above 1.25 times the bound, is as large as it must be in
 * every row, and no larger in some. */
void sparse_gqa_exact_sums(struct workload *work, char *message, size_t size) {
    enum { COLUMNS = 64, DIGITS = 24 };
    const int64_t rows = work->problem.options.rows, heads = 9;
    uint16_t *const grad = smelt__problem_data(&work->problem, SMELT__SPARSE_GQA_GRAD_GRAD_OUT);
    int least = INT_MAX;
    for (int64_t i = 0; i < work->problem.options.tokens * heads; i++)
        grad[i * COLUMNS] = smelt__bf16_from_float(64);
    if (suite_ok(smelt__placed_refresh(&work->placed), "upload", message, size) ||
        suite_ok(smelt__placed_run(&work->placed, work->object, NULL), "backward", message, size))
        return;
    for (int64_t row = 0; row < rows && !*message; row++) {
        const float *const dv =
            smelt__placed_row(&work->placed, SMELT__SPARSE_GQA_GRAD_DV_FP32, 0, row, 0);
        if (dv[0] > 0) {
            const int above = unit_exponent(dv, COLUMNS) + DIGITS - (int)ceil(log2(1.2 * dv[0]));
            least = above < least ? above : least;
            if (above < 0)
                snprintf(message, size, "dv[%lld] has more than %d digits", (long long)row, DIGITS);
        }
    }
    if (!*message && least > 0)
        snprintf(message, size, "every row of dv has %d digits fewer than %d", least, DIGITS);
    if (!*message)
        workload_judge(work, message, size);
}

/* Exact sums of addends with all exponents. The columns of an addend fall by powers of two, from the largest to what
 * no unit of its row reaches, so that a row's sum shows its unit; the largest is elsewhere in each row. */
enum {
    STEPS_HEADS = 9,
    STEPS_COLUMNS = 64, /* dqk and dv */
    LEAST = -126        /* the smallest exponent of a normal number */
};

/* A row's addends: one with this exponent, and others with the one below. The bounds have a bin for every 32 exponents,
 * the first for -127 to -96. The others of two rows reach from one bin into the next; those of the last row, beyond
 * the largest unit. */
static const struct steps_row {
    int exponent, others;
} steps_rows[] = {{LEAST, 0}, {-118, 0}, {-96, 0}, {-95, 16}, {-86, 0}, {-64, 0}, {-63, 0},
                  {-32, 0},   {-31, 0},  {-16, 0}, {0, 0},    {1, 0},   {9, 0},   {32, 0},
                  {33, 0},    {64, 0},   {65, 0},  {96, 0},   {97, 16}, {106, 0}, {126, 3}};
_Static_assert(SPARSE_GQA_STEPS_QUERIES == COUNT(steps_rows) + 16 + 16 + 3,
               "a query for each addend");

/* A column of an addend. In a bound the first one counts as 1.5, the next number with two bits after the leading one. */
static double step(int exponent, int column) {
    return ldexp(column ? 1 : 1.25, exponent - column < LEAST ? LEAST : exponent - column);
}

/* One head of a query adds to a row of dv and, with the opposite exponent, of dk: its score is 0 and so its p is 1, and
 * out makes ds 1. */
static void set_steps(const struct smelt__problem *problem, int query, int row, int exponent) {
    const int first = (query * STEPS_HEADS + query % STEPS_HEADS) * STEPS_COLUMNS;
    const int last = first + (2 * STEPS_COLUMNS - 1 - row) % STEPS_COLUMNS;
    uint16_t *const q = smelt__problem_data(problem, SMELT__SPARSE_GQA_GRAD_Q);
    uint16_t *const out = smelt__problem_data(problem, SMELT__SPARSE_GQA_GRAD_OUT);
    uint16_t *const grad = smelt__problem_data(problem, SMELT__SPARSE_GQA_GRAD_GRAD_OUT);
    int32_t *const lists = smelt__problem_data(problem, SMELT__SPARSE_GQA_GRAD_INDICES);
    for (int i = 0; i < STEPS_COLUMNS; i++) {
        q[first + i] = smelt__bf16_from_float((float)step(-exponent, (i + row) % STEPS_COLUMNS));
        grad[first + i] = smelt__bf16_from_float((float)step(exponent, (i + row) % STEPS_COLUMNS));
    }
    out[last] = smelt__bf16_from_float(-1 / smelt__bf16_to_float(grad[last]));
    lists[query] = row;
}

/* The exponent of the smallest normal power of two u with 1.25 * bound < 2^24 u and a finite 2^23 u. */
static int steps_unit(double bound) {
    int exponent;
    frexp(1.25 * bound, &exponent);
    return exponent < LEAST + 24 ? LEAST : exponent > 128 ? 104 : exponent - 24;
}

/* Whether a row is the sum of its addends, rounded to multiples of 2^unit. */
static int is_sum(const float *row, int shift, int exponent, int others, int other, int unit) {
    for (int i = 0; i < STEPS_COLUMNS; i++) {
        const int column = (i + shift) % STEPS_COLUMNS;
        const double units = nearbyint(ldexp(step(exponent, column), -unit)) +
                             others * nearbyint(ldexp(step(other, column), -unit));
        if ((double)row[i] != ldexp(units, unit))
            return 0;
    }
    return 1;
}

/* Whether it is for a documented unit. The bound is at least the sum of the largest columns; it exceeds it by at most
 * a quarter, and by three times the lower end of the largest one's bin. */
static int is_exact(const float *row, int shift, int exponent, int others, int other) {
    const int most = others && other > exponent ? other : exponent;
    const double sum = step(exponent, 0) + others * step(other, 0);
    const double end = ldexp(1, (most + 127) / 32 * 32 - 127);
    for (int unit = steps_unit(sum); unit <= steps_unit(1.25 * sum + 3 * end); unit++)
        if (is_sum(row, shift, exponent, others, other, unit))
            return 1;
    return 0;
}

void sparse_gqa_exact_steps(struct workload *work, char *message, size_t size) {
    static const int zeros[] = {SMELT__SPARSE_GQA_GRAD_Q,        SMELT__SPARSE_GQA_GRAD_K,
                                SMELT__SPARSE_GQA_GRAD_V,        SMELT__SPARSE_GQA_GRAD_OUT,
                                SMELT__SPARSE_GQA_GRAD_GRAD_OUT, SMELT__SPARSE_GQA_GRAD_LSE};
    int query = 0;
    ((smelt_sparse_gqa_grad_args *)work->placed.args)->scale = 1;
    for (int i = 0; i < COUNT(zeros); i++)
        memset(smelt__problem_data(&work->problem, zeros[i]), 0,
               smelt__problem_bytes(&work->problem, zeros[i]));
    for (int row = 0; row < COUNT(steps_rows); row++)
        for (int i = 0; i <= steps_rows[row].others; i++)
            set_steps(&work->problem, query++, row, steps_rows[row].exponent - (i > 0));
    if (suite_ok(smelt__placed_refresh(&work->placed), "upload", message, size) ||
        suite_ok(smelt__placed_run(&work->placed, work->object, NULL), "backward", message, size))
        return;
    for (int row = 0; row < COUNT(steps_rows); row++) {
        const struct steps_row own = steps_rows[row];
        const float *const dv =
            smelt__placed_row(&work->placed, SMELT__SPARSE_GQA_GRAD_DV_FP32, 0, row, 0);
        const float *const dk =
            smelt__placed_row(&work->placed, SMELT__SPARSE_GQA_GRAD_DK_FP32, 0, row, 0);
        const char *wrong = NULL;
        if (!is_exact(dv, row, own.exponent, own.others, own.exponent - 1))
            wrong = "dv";
        else if (!is_exact(dk, row, -own.exponent, own.others, 1 - own.exponent))
            wrong = "dk";
        if (wrong)
            snprintf(message, size, "%s[%d] is no sum of multiples of a documented unit", wrong,
                     row);
    }
}

/* Exact sums with an infinite column of one head's grad_out: infinite in the rows of dv that its query names, whose
 * other columns are rounded as before; no dk of these rows is finite, and all other rows keep their bits. */
enum {
    INFINITE_HEADS = 18, /* of two KV heads */
    INFINITE_DV = 128,
    INFINITE_DQK = 192,
    INFINITE_QUERY = 4,
    INFINITE_HEAD = 11,   /* of the second KV head */
    INFINITE_COLUMN = 101 /* of the second tile of dO */
};

static const char *judge_infinite(const float *before, const float *dv, const float *dk) {
    float rest[INFINITE_DV];
    double largest = 0;
    memcpy(rest, dv, sizeof rest);
    rest[INFINITE_COLUMN] = 0;
    for (int i = 0; i < INFINITE_DQK; i++)
        if (isfinite(dk[i]))
            return "has a finite dk";
    for (int i = 0; i < INFINITE_DV; i++) {
        if (i != INFINITE_COLUMN && !(fabs((double)rest[i] - (double)before[i]) < 1e-5))
            return "has another dv than without the infinity";
        largest = fmax(largest, fabs((double)rest[i]));
    }
    if (isfinite(dv[INFINITE_COLUMN]))
        return "has a finite column of dv in place of an infinite one";
    if (unit_exponent(rest, INFINITE_DV) + 24 < (int)floor(log2(largest)))
        return "has a dv that is not rounded";
    return NULL;
}

void sparse_gqa_infinite_column(struct workload *work, char *message, size_t size) {
    enum { DV = SMELT__SPARSE_GQA_GRAD_DV_FP32, DK = SMELT__SPARSE_GQA_GRAD_DK_FP32 };
    const int32_t *const lists =
        smelt__problem_data(&work->problem, SMELT__SPARSE_GQA_GRAD_INDICES);
    const int64_t rows = work->problem.options.rows, width = work->problem.options.width;
    uint16_t *const grad = smelt__problem_data(&work->problem, SMELT__SPARSE_GQA_GRAD_GRAD_OUT);
    const size_t dv_bytes = smelt__problem_bytes(&work->problem, DV);
    const size_t dk_bytes = smelt__problem_bytes(&work->problem, DK);
    float *const before_dv = malloc(dv_bytes), *const before_dk = malloc(dk_bytes);
    if (!before_dv || !before_dk ||
        suite_ok(smelt__placed_run(&work->placed, work->object, NULL), "a run", message, size))
        goto end;
    memcpy(before_dv, smelt__placed_row(&work->placed, DV, 0, 0, 0), dv_bytes);
    memcpy(before_dk, smelt__placed_row(&work->placed, DK, 0, 0, 0), dk_bytes);
    grad[(INFINITE_QUERY * INFINITE_HEADS + INFINITE_HEAD) * INFINITE_DV + INFINITE_COLUMN] =
        0x7f80;
    if (suite_ok(smelt__placed_refresh(&work->placed), "upload", message, size) ||
        suite_ok(smelt__placed_run(&work->placed, work->object, NULL), "backward", message, size))
        goto end;
    for (int64_t at = 0; at < 2 * rows; at++) { /* rows of both KV heads */
        const float *const dv = smelt__placed_row(&work->placed, DV, 0, at / 2, at % 2);
        const float *const dk = smelt__placed_row(&work->placed, DK, 0, at / 2, at % 2);
        const char *wrong = NULL;
        int named = 0;
        for (int64_t i = 0; i < width && at % 2; i++)
            named |= lists[INFINITE_QUERY * width + i] == at / 2;
        if (named)
            wrong = judge_infinite(before_dv + at * INFINITE_DV, dv, dk);
        else if (memcmp(dv, before_dv + at * INFINITE_DV, INFINITE_DV * sizeof *dv) != 0 ||
                 memcmp(dk, before_dk + at * INFINITE_DQK, INFINITE_DQK * sizeof *dk) != 0)
            wrong = "has other bits";
        if (wrong)
            snprintf(message, size, "row %lld of KV head %lld %s", (long long)at / 2,
                     (long long)at % 2, wrong);
    }
end:
    free(before_dv);
    free(before_dk);
}
