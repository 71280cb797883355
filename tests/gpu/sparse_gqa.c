/* sparse_gqa in the GPU suite: what its cases are. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/sparse_gqa_table.h"
#include "reference/bf16.h"
#include "suite.h"

/* ---- matrix: groups of heads x widths x granularities, everything else in turn ---------------- */

static const struct heads {
    int query, kv;
} all_heads[] = {{64, 4}, {24, 2}, {1, 1}, {8, 8}, {33, 1}, {40, 2}, {64, 1}, {112, 7}};
static const struct widths {
    int dqk, dv;
} widths[] = {{128, 128}, {256, 256}, {192, 128}, {96, 64}, {64, 64}, {256, 96}};
static const int granularities[] = {1, 4, 16, 64, 128};
static const int topks[] = {1, 16, 33, 130};

/* Whether a case unites lists, which then have something in common. */
static int is_united(int number) {
    return number / 2 % 3 == 0;
}

static void draw_problem(const struct suite *suite, int number, int topk, int granularity,
                         struct smelt__problem_options *problem) {
    const int most_rows = topk * granularity;
    struct smelt__random random = smelt__random_at(suite->seed, 31, (uint64_t)number);
    problem->seed = suite->seed * 1000 + (uint64_t)number;
    problem->batches = PICK(&random, 1, 1, 2, 3);
    problem->tokens = suite->quick ? 5 : PICK(&random, 11, 20, 37, 200);
    problem->rows = PICK(&random, most_rows / 2 + 3, most_rows + 1, 4096, 10007);
    problem->lists = (enum smelt__lists)((number + number / 4) % 4);
    if (is_united(number) && number % 4 != 3)
        problem->lists = number % 4 ? SMELT__LISTS_DRIFT : SMELT__LISTS_CAUSAL;
    problem->query_list = (enum smelt__query_list)((number + 5) % 9 < 5 ? (number + 5) % 9 : 0);
    problem->spiky = number % 4 == 1;
    problem->dkv = (enum smelt__dkv)(number / 3 % 3);
    problem->own[0] = number % 3; /* limits */
    problem->topk_length = smelt__random_below(&random, 3) == 0;
    problem->strided = smelt__random_below(&random, 3) == 0;
    if (suite->emulated) { /* to what it does in a second or so */
        problem->batches = problem->batches > 2 ? 2 : problem->batches;
        problem->tokens = 3;
        problem->rows = problem->rows > 700 ? 700 : problem->rows;
        problem->width = topk < 1 + 200 / most_rows ? topk : 1 + 200 / most_rows;
    }
}

static int matrix_case(const struct suite *suite, int number, struct suite_case *one) {
    const int w = number % COUNT(widths), h = number / COUNT(widths) % COUNT(all_heads);
    const int repeat = number / COUNT(widths) / COUNT(all_heads);
    const int granularity = granularities[(w + h + 2 * repeat) % COUNT(granularities)];
    const int topk = topks[(w + 2 * h + repeat) % COUNT(topks)];
    const int backward = (number + h) % 2;
    if (repeat >= 2)
        return 0;
    snprintf(one->spec, sizeof one->spec,
             "sparse_gqa:heads=%d,kv_heads=%d,dqk=%d,dv=%d,topk=%d,granularity=%d%s%s%s%s%s",
             all_heads[h].query, all_heads[h].kv, widths[w].dqk, widths[w].dv, topk, granularity,
             (w + h + repeat) % 2 ? ",lists=kv" : "", (h + repeat) % 3 == 0 ? ",sink=1" : "",
             backward ? ",passes=backward" : "",
             backward && number % 4 < 2 ? ",deterministic=1" : "",
             is_united(number) ? ",unite=1" : "");
    one->sample = suite->quick ? 4 : 24;
    draw_problem(suite, number, topk, granularity, &one->problem);
    return 1;
}

/* ---- offsets beyond 32 bits ------------------------------------------------------------------ */

static const struct suite_case large[] = {
    SUITE_CASE("large: sparse_gqa, S x Hkv x dqk above 2^31",
               "sparse_gqa:heads=16,kv_heads=4,dqk=256,dv=128,topk=64,granularity=16", 64,
               .tokens = 32, .rows = (1 << 21) + 7),
    SUITE_CASE("large: sparse_gqa, T x Hq x dqk above 2^31",
               "sparse_gqa:heads=128,kv_heads=8,dqk=256,dv=256,topk=4,granularity=64", 64,
               .tokens = 66000, .rows = 4096),
    {.name = NULL},
};

/* ---- one launch a thousand times, and other launches ------------------------------------------ */

static int repeated_case(const struct suite *suite, int number, struct suite_case *one) {
    static const char *const specs[] = {
        "sparse_gqa:heads=64,kv_heads=4,dqk=128,dv=128,topk=16,granularity=128,lists=kv",
        "sparse_gqa:heads=24,kv_heads=2,dqk=256,dv=256,topk=512,granularity=4",
        ("sparse_gqa:heads=64,kv_heads=4,dqk=128,dv=128,topk=16,granularity=128,lists=kv,"
         "passes=backward,deterministic=1"),
    };
    const int small = suite->quick || suite->emulated;
    if (number >= COUNT(specs))
        return 0;
    snprintf(one->spec, sizeof one->spec, "%s", specs[number]);
    one->problem.seed = suite->seed;
    one->problem.tokens = small ? 4 : 1000;
    one->problem.width = small ? 3 : 0;
    one->problem.rows = small ? 700 : 8192;
    one->problem.lists = SMELT__LISTS_LOG;
    return 1;
}

static const char *const launches[] = {
    "sparse_gqa:heads=16,kv_heads=2,dqk=128,dv=128,topk=8,granularity=16,lists=kv",
    "sparse_gqa:heads=16,kv_heads=2,dqk=128,dv=128,topk=8,granularity=16,lists=kv,passes=backward",
    NULL};

/* ---- what a launch must refuse --------------------------------------------------------------- */

static const struct suite_refusal refusals[] = {
    SUITE_REFUSAL(smelt_sparse_gqa_args, tokens, "2^31 - 1", INT_MAX), /* times batches */
    SUITE_REFUSAL(smelt_sparse_gqa_args, queries.data, "queries is NULL", 0),
    {.text = NULL},
};

static const struct suite_refusal grad_refusals[] = {
    SUITE_REFUSAL(smelt_sparse_gqa_grad_args, tokens, "2^31 - 1", INT_MAX), /* times batches */
    SUITE_REFUSAL(smelt_sparse_gqa_grad_args, queries.data, "queries is NULL", 0),
    {.text = NULL},
};

#define ARGUMENTS(keys, aligned_, refusals_)                                                       \
    {                                                                                              \
        .spec = "sparse_gqa:heads=6,kv_heads=2,dqk=96,dv=64,topk=9,granularity=16" keys,           \
        .problem = {.batches = 2,                                                                  \
                    .tokens = 3,                                                                   \
                    .rows = 100,                                                                   \
                    .query_list = SMELT__QUERY_LIST_PARTIAL,                                       \
                    .topk_length = 1,                                                              \
                    .own = {1}},                                                                   \
        .aligned = (aligned_), .refusals = (refusals_)                                             \
    }
static const struct suite_arguments arguments[] = {
    ARGUMENTS("", "q k v out", refusals),
    ARGUMENTS(",lists=kv,sink=1", "q k v out", refusals),
    ARGUMENTS(",lists=kv,sink=1,passes=backward",
              "q k v out grad_out dq dk dk_fp32 dk_sum dv dv_fp32 dv_sum", grad_refusals),
    {.spec = NULL}};

/* ---- special problems ------------------------------------------------------------------------ */

enum { LONELY = 2, /* a query whose list is masked, in a tile that is united */ WIDTH = 3 };

/* A NaN in a row of v that its neighbours read must not reach it. */
static void lonely_query(struct workload *work, char *message, size_t size) {
    int32_t *const lists = smelt__problem_data(&work->problem, SMELT__SPARSE_GQA_INDICES);
    uint16_t *const v = smelt__problem_data(&work->problem, SMELT__SPARSE_GQA_V);
    for (int i = 0; i < WIDTH; i++)
        lists[LONELY * WIDTH + i] = -1;
    v[0] = 0x7fc0;
    if (suite_ok(smelt__placed_refresh(&work->placed), "upload", message, size) ||
        suite_ok(smelt__placed_run(&work->placed, work->object, NULL), "forward", message, size))
        return;
    const uint16_t *const out =
        smelt__placed_row(&work->placed, SMELT__SPARSE_GQA_OUT, 0, LONELY, 0);
    const uint16_t *const other =
        smelt__placed_row(&work->placed, SMELT__SPARSE_GQA_OUT, 0, LONELY + 1, 0);
    if (out[0] != 0)
        snprintf(message, size, "out of a query without a row is %04x, not 0", out[0]);
    else if ((other[0] & 0x7fff) <= 0x7f80)
        snprintf(message, size, "a query that reads a NaN has %04x", other[0]);
}

static void judge_results(struct workload *work, char *message, size_t size) {
    if (suite_ok(smelt__placed_run(&work->placed, work->object, NULL), "run", message, size) == 0)
        workload_judge(work, message, size);
}

/* Without rows every slot is out of range. */
static void no_rows(struct workload *work, char *message, size_t size) {
    smelt_sparse_gqa_args *const host = work->problem.args, *const args = work->placed.args;
    host->rows = args->rows = 0;
    args->k.data = args->v.data = NULL;
    for (int run = 0; run < 3 && !*message; run++) { /* each with another poison in the workspace */
        if (suite_ok(smelt__placed_poison(&work->placed), "poison", message, size) == 0)
            judge_results(work, message, size);
    }
}

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
static void exact_sums(struct workload *work, char *message, size_t size) {
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
    STEPS_ROWS = 128,   /* so many that the grains fill their memory */
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
enum { STEPS_QUERIES = COUNT(steps_rows) + 16 + 16 + 3 };

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

static void exact_steps(struct workload *work, char *message, size_t size) {
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

static void infinite_column(struct workload *work, char *message, size_t size) {
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

static void run_special(struct suite *suite) {
    static const struct special {
        const char *spec;
        struct smelt__problem_options options;
        void (*judge)(struct workload *work, char *message, size_t size);
    } cases[] = {
        {"sparse_gqa:heads=8,kv_heads=1,dqk=64,dv=64,topk=3,granularity=16,unite=1",
         {.tokens = 4, .rows = 150, .lists = SMELT__LISTS_FULL},
         lonely_query},
        {"sparse_gqa:heads=8,kv_heads=1,dqk=64,dv=64,topk=3,granularity=64,unite=1",
         {.tokens = 4, .rows = 150, .lists = SMELT__LISTS_FULL},
         lonely_query},
        {"sparse_gqa:heads=8,kv_heads=1,dqk=64,dv=64,topk=3,granularity=64,sink=1,unite=1",
         {.tokens = 4, .rows = 150, .lists = SMELT__LISTS_FULL},
         no_rows},
        /* With an empty query list no entry of it is read, nor any query. */
        {"sparse_gqa:heads=8,kv_heads=1,dqk=64,dv=64,topk=3,granularity=16,deterministic=1,"
         "passes=backward",
         {.tokens = 4,
          .rows = 150,
          .lists = SMELT__LISTS_FULL,
          .query_list = SMELT__QUERY_LIST_EMPTY},
         judge_results},
        {"sparse_gqa:heads=8,kv_heads=1,dqk=64,dv=64,topk=3,granularity=16,unite=1",
         {.tokens = 4,
          .rows = 150,
          .lists = SMELT__LISTS_FULL,
          .query_list = SMELT__QUERY_LIST_EMPTY},
         judge_results},
        {"sparse_gqa:heads=9,kv_heads=1,dqk=64,dv=64,topk=20,granularity=1,deterministic=1,"
         "passes=backward",
         {.tokens = 40, .rows = 30, .dkv = SMELT__DKV_FP32},
         exact_sums},
        {"sparse_gqa:heads=9,kv_heads=1,dqk=64,dv=64,topk=20,granularity=1,deterministic=1,"
         "passes=backward",
         {.tokens = STEPS_QUERIES, .width = 1, .rows = STEPS_ROWS, .dkv = SMELT__DKV_FP32},
         exact_steps},
        {"sparse_gqa:heads=18,kv_heads=2,dqk=192,dv=128,topk=20,granularity=1,deterministic=1,"
         "passes=backward",
         {.tokens = 9,
          .rows = 60,
          .width = 20,
          .lists = SMELT__LISTS_RANDOM,
          .dkv = SMELT__DKV_FP32},
         infinite_column},
        /* United lists with one buffer of K and V, and blocks that one part alone reads. */
        {"sparse_gqa:heads=8,kv_heads=1,dqk=256,dv=128,topk=3,granularity=128,unite=1",
         {.tokens = 18, .rows = 700, .lists = SMELT__LISTS_DRIFT},
         judge_results},
        /* Maxima that rise, and KV heads with lists of their own. */
        {"sparse_gqa:heads=8,kv_heads=2,dqk=64,dv=64,topk=5,granularity=64,lists=kv,unite=1",
         {.tokens = 24, .rows = 600, .lists = SMELT__LISTS_DRIFT, .spiky = 1},
         judge_results},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        struct smelt__problem_options options = cases[i].options;
        struct workload work;
        char name[160], message[512] = "";
        options.seed = suite->seed;
        snprintf(name, sizeof name, "special: %s", cases[i].spec);
        if (!suite_wants(suite, name))
            continue;
        if (workload_open(&work, suite, cases[i].spec, &options, message, sizeof message) == 0) {
            cases[i].judge(&work, message, sizeof message);
            workload_close(&work);
        }
        suite_report(suite, name, message);
    }
}

static const struct suite_group groups[] = {{"special", run_special}, {NULL, NULL}};

const struct suite_operator suite_operator_sparse_gqa = {
    .matrix = matrix_case,
    .large = large,
    .repeated = repeated_case,
    .launches = launches,
    .launch = {.tokens = 64, .rows = 5000},
    .quick_launch = {.tokens = 4, .rows = 1000},
    .arguments = arguments,
    .groups = groups};
