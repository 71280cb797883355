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
    enum { COLUMNS = 64, DIGITS = 24, HEADS = 18 };
    const int64_t rows = work->problem.options.rows;
    uint16_t *const grad = smelt__problem_data(&work->problem, SMELT__SPARSE_GQA_GRAD_GRAD_OUT);
    int least = INT_MAX;
    for (int64_t i = 0; i < work->problem.options.tokens * HEADS; i++)
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

/* Exact sums of addends with all exponents. From the largest column of an addend on, each next column is half as large,
 * down to values far below the row's unit, so that a row's sum shows its unit. Rows differ in which column is the
 * largest. Each query adds to one row, whose slot differs from list to list; the other slots name rows with scores so
 * low that their addends are 0. */
enum {
    STEPS_HEADS = 18,
    STEPS_COLUMNS = 64, /* dqk and dv */
    LEAST = -126,       /* the smallest exponent of a normal number */
    LARGEST = 127
};

/* A row's addends: one with this exponent, and others with the one below. The bounds have a bin for every 32 exponents,
 * the first for -127 to -96. The others of two rows reach from one bin into the next; those of the last row, beyond
 * the largest unit. */
static const struct steps_row {
    int exponent, others;
    int overflows; /* the last column of dk is infinite */
} steps_rows[] = {{LEAST, 0, 0}, {-118, 0, 0}, {-96, 0, 0}, {-95, 16, 0}, {-86, 0, 1}, {-64, 0, 1},
                  {-63, 0, 1},   {-32, 0, 1},  {-31, 0, 0}, {-16, 0, 0},  {0, 0, 0},   {1, 0, 0},
                  {9, 0, 0},     {32, 0, 0},   {33, 0, 0},  {64, 0, 0},   {65, 0, 0},  {96, 0, 0},
                  {97, 16, 0},   {106, 0, 0},  {126, 3, 0}};
_Static_assert(SPARSE_GQA_STEPS_QUERIES == COUNT(steps_rows) + 16 + 16 + 3,
               "a query for each addend");

/* A column of an addend. In a bound the first one counts as 1.5, the next number with two bits after the leading one. */
static double step(int exponent, int column) {
    return ldexp(column ? 1 : 1.25, exponent - column < LEAST ? LEAST : exponent - column);
}

/* One head of a query adds to a row of dv and, with the opposite exponent, of dk: its score is 0, so its p is 1. out is
 * chosen so that ds is 2 or 1/2, whichever makes all inputs normal numbers. The heads belong to both k-steps of wgmma,
 * also those of rows with a single addend. */
static void set_steps(const struct smelt__problem *problem, int query, int row, int exponent) {
    enum { WIDTH = SPARSE_GQA_STEPS_WIDTH };
    const int ds = exponent < 0 ? 1 : -1; /* its exponent */
    const int first = (query * STEPS_HEADS + (query + 15) % STEPS_HEADS) * STEPS_COLUMNS;
    const int last = first + (2 * STEPS_COLUMNS - 1 - row) % STEPS_COLUMNS;
    uint16_t *const q = smelt__problem_data(problem, SMELT__SPARSE_GQA_GRAD_Q);
    uint16_t *const out = smelt__problem_data(problem, SMELT__SPARSE_GQA_GRAD_OUT);
    uint16_t *const grad = smelt__problem_data(problem, SMELT__SPARSE_GQA_GRAD_GRAD_OUT);
    int32_t *const lists = smelt__problem_data(problem, SMELT__SPARSE_GQA_GRAD_INDICES);
    for (int i = 0; i < STEPS_COLUMNS; i++) {
        q[first + i] =
            smelt__bf16_from_float((float)ldexp(step(-exponent, (i + row) % STEPS_COLUMNS), -ds));
        grad[first + i] = smelt__bf16_from_float((float)step(exponent, (i + row) % STEPS_COLUMNS));
    }
    if (steps_rows[row].overflows)
        q[last] = smelt__bf16_from_float(ldexpf(1, LARGEST));
    out[last] = smelt__bf16_from_float(-ldexpf(1, ds) / smelt__bf16_to_float(grad[last]));
    for (int i = 0; i < WIDTH; i++)
        lists[query * WIDTH + (query * 29 + i) % WIDTH] = i ? COUNT(steps_rows) + i : row;
}

/* The exponent of the smallest normal power of two u with 1.25 * bound < 2^24 u and a finite 2^23 u. */
static int steps_unit(double bound) {
    int exponent;
    frexp(1.25 * bound, &exponent);
    return exponent < LEAST + 24 ? LEAST : exponent > 128 ? 104 : exponent - 24;
}

/* Addends of a row of dk or dv. */
struct addends {
    int exponent, others, other; /* the others' exponent */
    int overflows;               /* the last column is infinite */
};

/* Whether a row is the sum of its addends, rounded to multiples of 2^unit. */
static int is_sum(const float *row, int shift, const struct addends *of, int unit) {
    for (int i = 0; i < STEPS_COLUMNS; i++) {
        const int column = (i + shift) % STEPS_COLUMNS;
        const double units = nearbyint(ldexp(step(of->exponent, column), -unit)) +
                             of->others * nearbyint(ldexp(step(of->other, column), -unit));
        const int infinite = of->overflows && column == STEPS_COLUMNS - 1;
        if ((double)row[i] != (infinite ? HUGE_VAL : ldexp(units, unit)))
            return 0;
    }
    return 1;
}

/* Whether a row is such a sum for a documented unit. The bound is at least the sum of the addends' largest columns, and
 * at most 1.25 times that sum plus three times the lower end of the largest one's bin. */
static int is_exact(const float *row, int shift, const struct addends *of) {
    const int most = of->others && of->other > of->exponent ? of->other : of->exponent;
    const double sum = step(of->exponent, 0) + of->others * step(of->other, 0);
    const double end = ldexp(1, (most + 127) / 32 * 32 - 127);
    for (int unit = steps_unit(sum); unit <= steps_unit(1.25 * sum + 3 * end); unit++)
        if (is_sum(row, shift, of, unit))
            return 1;
    return 0;
}

void sparse_gqa_exact_steps(struct workload *work, char *message, size_t size) {
    static const int zeros[] = {SMELT__SPARSE_GQA_GRAD_Q,        SMELT__SPARSE_GQA_GRAD_K,
                                SMELT__SPARSE_GQA_GRAD_V,        SMELT__SPARSE_GQA_GRAD_OUT,
                                SMELT__SPARSE_GQA_GRAD_GRAD_OUT, SMELT__SPARSE_GQA_GRAD_LSE};
    uint16_t *const k = smelt__problem_data(&work->problem, SMELT__SPARSE_GQA_GRAD_K);
    int query = 0;
    ((smelt_sparse_gqa_grad_args *)work->placed.args)->scale = 1;
    for (int i = 0; i < COUNT(zeros); i++)
        memset(smelt__problem_data(&work->problem, zeros[i]), 0,
               smelt__problem_bytes(&work->problem, zeros[i]));
    for (int i = COUNT(steps_rows) * STEPS_COLUMNS; i < SPARSE_GQA_STEPS_ROWS * STEPS_COLUMNS; i++)
        k[i] = smelt__bf16_from_float(-ldexpf(1, LARGEST));
    for (int row = 0; row < COUNT(steps_rows); row++)
        for (int i = 0; i <= steps_rows[row].others; i++)
            set_steps(&work->problem, query++, row, steps_rows[row].exponent - (i > 0));
    if (suite_ok(smelt__placed_refresh(&work->placed), "upload", message, size) ||
        suite_ok(smelt__placed_run(&work->placed, work->object, NULL), "backward", message, size))
        return;
    for (int row = 0; row < COUNT(steps_rows); row++) {
        const struct steps_row own = steps_rows[row];
        const struct addends of_dv = {own.exponent, own.others, own.exponent - 1, 0};
        const struct addends of_dk = {-own.exponent, own.others, 1 - own.exponent, own.overflows};
        const float *const dv =
            smelt__placed_row(&work->placed, SMELT__SPARSE_GQA_GRAD_DV_FP32, 0, row, 0);
        const float *const dk =
            smelt__placed_row(&work->placed, SMELT__SPARSE_GQA_GRAD_DK_FP32, 0, row, 0);
        const char *wrong = NULL;
        if (!is_exact(dv, row, &of_dv))
            wrong = "dv";
        else if (!is_exact(dk, row, &of_dk))
            wrong = "dk";
        if (wrong)
            snprintf(message, size, "%s[%d] is no sum of multiples of a documented unit", wrong,
                     row);
    }
}

/* Exact sums where a head's grad_out has an infinite column. In the rows that its query names this column of dv is
 * infinite, the other columns of dv are rounded as before, and no dk is finite; all other rows keep their bits. Each
 * such head also has a large finite column, which determines the bounds of these rows. */
enum {
    INFINITE_HEADS = 18, /* of two KV heads */
    INFINITE_DV = 128,
    INFINITE_DQK = 192,
    INFINITE_HEAD = 11 /* of the second KV head */
};

/* Queries with an infinity, its column, the large column, and the rows that they name. Column 38 is in the first tile of
 * dO, 101 in the second; the kernel that computes the bounds processes them in different iterations. The large column is
 * in the first tile; a thread has a maximum of even columns and one of odd columns. No query here names row 0, the row
 * number of a block's keys past the last one. */
static const struct infinite {
    int query, column, large, first, rows;
} infinities[] = {{4, 101, 5, 1, 10},
                  {8, 101, 4, 11, 10},
                  {5, 38, 5, 21, 20},
                  {6, 101, 5, 41, 1},
                  {7, 38, 5, 0, 0}};

static const char *judge_infinite(int column, const float *before, const float *dv,
                                  const float *dk) {
    float rest[2][INFINITE_DV]; /* dv without and with the infinity, whose column is set to 0 */
    double largest = 0;
    memcpy(rest[0], before, sizeof rest[0]);
    memcpy(rest[1], dv, sizeof rest[1]);
    rest[0][column] = rest[1][column] = 0;
    const double unit = ldexp(1, unit_exponent(rest[0], INFINITE_DV));
    for (int i = 0; i < INFINITE_DQK; i++)
        if (isfinite(dk[i]))
            return "has a finite dk";
    for (int i = 0; i < INFINITE_DV; i++) {
        if (!(fabs((double)rest[1][i] - (double)rest[0][i]) < 16 * unit))
            return "has another dv than without the infinity";
        largest = fmax(largest, fabs((double)rest[1][i]));
    }
    if (isfinite(dv[column]))
        return "has a finite column of dv in place of an infinite one";
    if (unit_exponent(rest[1], INFINITE_DV) + 24 < (int)floor(log2(largest)))
        return "has a dv that is not rounded";
    return NULL;
}

/* Each row is named by at most one of the queries with an infinity. */
static void set_lists(const struct smelt__problem *problem) {
    const int64_t width = problem->options.width;
    int32_t *const lists = smelt__problem_data(problem, SMELT__SPARSE_GQA_GRAD_INDICES);
    uint16_t *const grad = smelt__problem_data(problem, SMELT__SPARSE_GQA_GRAD_GRAD_OUT);
    for (int k = 0; k < COUNT(infinities); k++) {
        const struct infinite own = infinities[k];
        for (int64_t i = 0; i < width; i++)
            lists[own.query * width + i] = i < own.rows ? own.first + (int)i : -1;
        grad[(own.query * INFINITE_HEADS + INFINITE_HEAD) * INFINITE_DV + own.large] =
            smelt__bf16_from_float(1 << 20);
    }
}

static void set_infinities(const struct smelt__problem *problem) {
    uint16_t *const grad = smelt__problem_data(problem, SMELT__SPARSE_GQA_GRAD_GRAD_OUT);
    for (int k = 0; k < COUNT(infinities); k++)
        grad[(infinities[k].query * INFINITE_HEADS + INFINITE_HEAD) * INFINITE_DV +
             infinities[k].column] = 0x7f80;
}

void sparse_gqa_infinite_column(struct workload *work, char *message, size_t size) {
    enum { DV = SMELT__SPARSE_GQA_GRAD_DV_FP32, DK = SMELT__SPARSE_GQA_GRAD_DK_FP32 };
    const int64_t rows = work->problem.options.rows;
    const size_t dv_bytes = smelt__problem_bytes(&work->problem, DV);
    const size_t dk_bytes = smelt__problem_bytes(&work->problem, DK);
    float *const before_dv = malloc(dv_bytes), *const before_dk = malloc(dk_bytes);
    set_lists(&work->problem);
    if (!before_dv || !before_dk ||
        suite_ok(smelt__placed_refresh(&work->placed), "upload", message, size) ||
        suite_ok(smelt__placed_run(&work->placed, work->object, NULL), "a run", message, size))
        goto end;
    memcpy(before_dv, smelt__placed_row(&work->placed, DV, 0, 0, 0), dv_bytes);
    memcpy(before_dk, smelt__placed_row(&work->placed, DK, 0, 0, 0), dk_bytes);
    set_infinities(&work->problem);
    if (suite_ok(smelt__placed_refresh(&work->placed), "upload", message, size) ||
        suite_ok(smelt__placed_run(&work->placed, work->object, NULL), "backward", message, size))
        goto end;
    for (int64_t at = 0; at < 2 * rows; at++) { /* rows of both KV heads */
        const float *const dv = smelt__placed_row(&work->placed, DV, 0, at / 2, at % 2);
        const float *const dk = smelt__placed_row(&work->placed, DK, 0, at / 2, at % 2);
        const char *wrong = NULL;
        int column = -1;
        for (int k = 0; k < COUNT(infinities) && at % 2; k++)
            if (at / 2 >= infinities[k].first && at / 2 < infinities[k].first + infinities[k].rows)
                column = infinities[k].column;
        if (column >= 0)
            wrong = judge_infinite(column, before_dv + at * INFINITE_DV, dv, dk);
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
