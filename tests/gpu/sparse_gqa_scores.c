/* sparse_gqa_scores in the GPU suite: what its cases are. */
#include <limits.h>
#include <stdio.h>

#include "ops/sparse_gqa_table.h"
#include "suite.h"

/* ---- matrix: groups of heads x widths, everything else in turn -------------------------------- */

static const struct heads {
    int query, kv;
} all_heads[] = {{64, 4}, {24, 2}, {1, 1}, {33, 1}, {112, 7}};
static const int widths[] = {128, 256, 192, 96, 64};
static const int granularities[] = {128, 4, 64, 16, 1};
static const int topks[] = {16, 130, 1, 33};

static void draw_problem(const struct suite *suite, int number, int topk, int granularity,
                         struct smelt__problem_options *problem) {
    const int most_rows = topk * granularity;
    struct smelt__random random = smelt__random_at(suite->seed, 33, (uint64_t)number);
    problem->seed = suite->seed * 1000 + (uint64_t)number;
    problem->batches = PICK(&random, 1, 1, 2);
    problem->tokens = suite->quick ? 5 : PICK(&random, 11, 20, 37, 200);
    problem->rows = PICK(&random, most_rows / 2 + 3, most_rows + 1, 4096, 10007);
    problem->lists = (enum smelt__lists)((number + number / 4) % 4);
    problem->query_list = (enum smelt__query_list)((number + 5) % 9 < 5 ? (number + 5) % 9 : 0);
    problem->spiky = number % 4 == 1;
    problem->own[0] = number % 3; /* limits */
    problem->topk_length = smelt__random_below(&random, 3) == 0;
    problem->strided = smelt__random_below(&random, 3) == 0;
    if (suite->emulated) { /* to what it does in a second or so */
        problem->tokens = 3;
        problem->rows = problem->rows > 700 ? 700 : problem->rows;
        problem->width = topk < 1 + 200 / most_rows ? topk : 1 + 200 / most_rows;
    }
}

static int matrix_case(const struct suite *suite, int number, struct suite_case *one) {
    const int w = number % COUNT(widths), h = number / COUNT(widths);
    const int granularity = granularities[(w + h) % COUNT(granularities)];
    const int topk = topks[(w + 2 * h) % COUNT(topks)];
    if (h >= COUNT(all_heads))
        return 0;
    snprintf(one->spec, sizeof one->spec,
             "sparse_gqa_scores:heads=%d,kv_heads=%d,dqk=%d,topk=%d,granularity=%d%s%s",
             all_heads[h].query, all_heads[h].kv, widths[w], topk, granularity,
             (w + h) % 2 ? "" : ",lists=kv", h % 3 == 1 ? ",sink=1" : "");
    one->sample = suite->quick ? 4 : 24;
    draw_problem(suite, number, topk, granularity, &one->problem);
    return 1;
}

/* ---- offsets beyond 32 bits ------------------------------------------------------------------ */

static const struct suite_case large[] = {
    SUITE_CASE("large: sparse_gqa_scores, S x Hkv x dqk above 2^31",
               "sparse_gqa_scores:heads=16,kv_heads=4,dqk=256,topk=64,granularity=16", 64,
               .tokens = 32, .rows = (1 << 21) + 7),
    {.name = NULL},
};

/* Strides of billions: every product of an index and a stride passes 2^32 elements. */

/* ---- one launch a thousand times, and other launches ------------------------------------------ */

static const struct suite_case repeated[] = {
    SUITE_CASE(NULL, "sparse_gqa_scores:heads=24,kv_heads=2,dqk=256,topk=512,granularity=4", 0,
               .tokens = 1000, .rows = 8192, .lists = SMELT__LISTS_LOG),
    {.spec = ""},
};

static const char *const launches[] = {
    "sparse_gqa_scores:heads=16,kv_heads=2,dqk=128,topk=8,granularity=16,lists=kv", NULL};

/* ---- strides of billions ---------------------------------------------------------------------- */

static const struct suite_case far[] = {
    SUITE_FAR("sparse_gqa_scores:heads=6,kv_heads=2,dqk=96,topk=9,granularity=16,lists=kv,sink=1",
              .batches = 2, .tokens = 3, .rows = 100, .query_list = SMELT__QUERY_LIST_PARTIAL,
              .topk_length = 1, .own = {1}),
    {.spec = ""},
};

const struct suite_operator suite_operator_sparse_gqa_scores = {
    .matrix = matrix_case,
    .large = large,
    .repeated = repeated,
    .quick_repeated = {.tokens = 4, .width = 3, .rows = 700},
    .launches = launches,
    .launch = {.tokens = 64, .rows = 5000},
    .quick_launch = {.tokens = 4, .rows = 1000},
    .far = far};
