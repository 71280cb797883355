/* sparse_gqa in the GPU suite: what its cases are. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "ops/sparse_gqa_table.h"
#include "sparse_gqa_exact.h"
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

#define REPEATED(spec_)                                                                            \
    SUITE_CASE(NULL, spec_, 0, .tokens = 1000, .rows = 8192, .lists = SMELT__LISTS_LOG)
static const struct suite_case repeated[] = {
    REPEATED("sparse_gqa:heads=64,kv_heads=4,dqk=128,dv=128,topk=16,granularity=128,lists=kv"),
    REPEATED("sparse_gqa:heads=24,kv_heads=2,dqk=256,dv=256,topk=512,granularity=4"),
    REPEATED("sparse_gqa:heads=64,kv_heads=4,dqk=128,dv=128,topk=16,granularity=128,lists=kv,"
             "passes=backward,deterministic=1"),
    {.spec = ""},
};

static const char *const launches[] = {
    "sparse_gqa:heads=16,kv_heads=2,dqk=128,dv=128,topk=8,granularity=16,lists=kv",
    "sparse_gqa:heads=16,kv_heads=2,dqk=128,dv=128,topk=8,granularity=16,lists=kv,passes=backward",
    NULL};

/* ---- strides of billions ---------------------------------------------------------------------- */

#define FAR(keys)                                                                                  \
    SUITE_FAR("sparse_gqa:heads=6,kv_heads=2,dqk=96,dv=64,topk=9,granularity=16" keys,             \
              .batches = 2, .tokens = 3, .rows = 100, .query_list = SMELT__QUERY_LIST_PARTIAL,     \
              .topk_length = 1, .own = {1})
static const struct suite_case far[] = {
    FAR(""), FAR(",lists=kv,sink=1"), FAR(",lists=kv,sink=1,passes=backward"), {.spec = ""}};

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

/* The queries of a tile choose the same blocks, each in another order, but for the last one, which chooses others. */
static void rotated_lists(struct workload *work, char *message, size_t size) {
    enum { TILE = 8, BLOCKS = 8 };
    int32_t *const lists = smelt__problem_data(&work->problem, SMELT__SPARSE_GQA_INDICES);
    for (int query = 0; query < work->problem.options.tokens; query++)
        for (int i = 0; i < BLOCKS; i++)
            lists[query * BLOCKS + i] = query % TILE < TILE - 1 ? (query + i) % BLOCKS : BLOCKS + i;
    if (suite_ok(smelt__placed_refresh(&work->placed), "upload", message, size) == 0)
        judge_results(work, message, size);
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

/* Two k-steps of heads, a whole block of keys. */
#define EXACT_SUMS                                                                                 \
    "sparse_gqa:heads=18,kv_heads=1,dqk=64,dv=64,topk=64,granularity=1,deterministic=1,"           \
    "passes=backward"

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
        {EXACT_SUMS,
         {.tokens = 40, .width = 20, .rows = 30, .dkv = SMELT__DKV_FP32},
         sparse_gqa_exact_sums},
        {EXACT_SUMS,
         {.tokens = SPARSE_GQA_STEPS_QUERIES,
          .width = SPARSE_GQA_STEPS_WIDTH,
          .rows = SPARSE_GQA_STEPS_ROWS,
          .dkv = SMELT__DKV_FP32},
         sparse_gqa_exact_steps},
        {"sparse_gqa:heads=18,kv_heads=2,dqk=192,dv=128,topk=20,granularity=1,deterministic=1,"
         "passes=backward",
         {.tokens = 9,
          .rows = 60,
          .width = 20,
          .lists = SMELT__LISTS_RANDOM,
          .dkv = SMELT__DKV_FP32},
         sparse_gqa_infinite_column},
        /* United lists with one buffer of K and V, and blocks that one part alone reads. */
        {"sparse_gqa:heads=8,kv_heads=1,dqk=256,dv=128,topk=3,granularity=128,unite=1",
         {.tokens = 18, .rows = 700, .lists = SMELT__LISTS_DRIFT},
         judge_results},
        {"sparse_gqa:heads=16,kv_heads=1,dqk=64,dv=64,topk=8,granularity=64,unite=1",
         {.tokens = 16, .width = 8, .rows = 1024, .lists = SMELT__LISTS_DRIFT},
         rotated_lists},
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
    .repeated = repeated,
    .quick_repeated = {.tokens = 4, .width = 3, .rows = 700},
    .launches = launches,
    .launch = {.tokens = 64, .rows = 5000},
    .quick_launch = {.tokens = 4, .rows = 1000},
    .far = far,
    .groups = groups};
