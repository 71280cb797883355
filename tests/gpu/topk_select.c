/* topk_select's cases of the GPU suite. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/random.h"
#include "harness/topk_select_data.h"
#include "smelt/topk_select.h"
#include "suite.h"

enum { DATA, WINDOWS, VALUES }; /* the operator's own options */
enum { WHOLE, CAUSAL, RANDOM };

/* ---- matrix ---------------------------------------------------------------------------------- */

/* On the emulator: every path through the kernels, with data that leads to it. Rows around the
 * sizes of lists (2048, 4096, 6144 entries), of the map (65536 elements), and of windows that only
 * the pass merge reads (12288); several blocks for few rows from 32768 columns on. */
static const struct suite_case small_cases[] = {
#define CASE(spec_, T, S, data, windows, values, strided_)                                         \
    {                                                                                              \
        .spec = "topk_select:topk=" spec_, .problem = {                                            \
            .tokens = (T),                                                                         \
            .rows = (S),                                                                           \
            .strided = (strided_),                                                                 \
            .own = {SMELT__TOPK_##data, windows, values}                                           \
        }                                                                                          \
    }
    CASE("100", 3, 2049, GAUSSIAN, WHOLE, 1, 0),
    CASE("100", 8, 2600, SPECIAL, RANDOM, 0, 1),
    CASE("100", 9, 1, GAUSSIAN, CAUSAL, 1, 0),
    CASE("100,order=score", 4, 3001, LEVELS, CAUSAL, 1, 1),
    CASE("100", 2, 4097, EQUAL, WHOLE, 0, 0),
    CASE("2048", 3, 4799, ZEROS, RANDOM, 0, 1),
    CASE("100,order=score", 2, 2100, PERIODIC, WHOLE, 0, 0),
    CASE("2048", 2, 6500, NEGATIVE, RANDOM, 1, 0),
    CASE("4096", 2, 6200, NARROW, WHOLE, 0, 0),
    CASE("100", 3, 32768, CORRELATED, CAUSAL, 0, 0),
    CASE("100", 1, 40003, LEVELS, WHOLE, 1, 1),
    CASE("2048", 1, 33000, INCREASING, WHOLE, 0, 0),
    CASE("100,order=score", 2, 66000, BF16, RANDOM, 0, 0),
    CASE("100", 1, 70000, EQUAL, WHOLE, 0, 0),
    CASE("100,groups=3,pinned=7", 5, 2600, SPECIAL, RANDOM, 1, 1),
    CASE("100,expand=4,tail=1", 9, 2600, LEVELS, RANDOM, 0, 1),
    CASE("100,expand=4,tail=1,groups=2,pinned=1", 4, 700, BF16, CAUSAL, 1, 0),
    CASE("16,expand=128,pinned=16", 3, 300, GAUSSIAN, CAUSAL, 0, 0),
    CASE("100,dtype=bf16", 3, 2601, SPECIAL, RANDOM, 1, 1),
    CASE("60,dtype=bf16,expand=2,groups=2", 1, 33001, LEVELS, WHOLE, 0, 1),
    CASE("5000", 2, 13000, LEVELS, RANDOM, 0, 0),
    CASE("5000,pinned=3,expand=2,tail=1", 1, 40003, ZEROS, WHOLE, 1, 0),
};

static const int all_topk[] = {1, 31, 512, 700, 2048, 3000, 4096, 8192, 16384};
static const char *const all_lists[] = {
    "",
    "",
    ",pinned=1",
    ",expand=4,tail=1",
    ",groups=4,pinned=1,expand=16",
    ",dtype=bf16",
    ",dtype=bf16,groups=2,expand=2,tail=1",
};
static const int64_t all_rows[] = {1, 77, 2048, 4097, 8192, 20001, 32768, 65537, 100003, 300000};

/* Combinations of all settings, cyclically. */
static void large_matrix_case(const struct suite *suite, int number, struct suite_case *one) {
    struct smelt__random random = smelt__random_at(suite->seed, 7, (uint64_t)number);
    const int by_score = smelt__random_below(&random, 3) == 0;
    snprintf(one->spec, sizeof one->spec, "topk_select:topk=%d%s%s",
             all_topk[number % COUNT(all_topk)], by_score ? ",order=score" : "",
             by_score ? "" : all_lists[smelt__random_below(&random, COUNT(all_lists))]);
    one->problem.rows = all_rows[number / 3 % COUNT(all_rows)];
    one->problem.tokens = smelt__random_below(&random, 3) ? 1 + smelt__random_below(&random, 9)
                                                          : 200 + smelt__random_below(&random, 600);
    one->problem.strided = smelt__random_below(&random, 3) == 0;
    one->problem.own[DATA] = number % SMELT__TOPK_DATA_KINDS;
    one->problem.own[WINDOWS] = smelt__random_below(&random, 3);
    one->problem.own[VALUES] = smelt__random_below(&random, 2);
}

static int matrix_case(const struct suite *suite, int number, struct suite_case *one) {
    enum { CASES = 300 };
    const int small = suite->quick || suite->emulated;
    if (number >= (small ? COUNT(small_cases) : CASES))
        return 0;
    if (small)
        *one = small_cases[number];
    else
        large_matrix_case(suite, number, one);
    one->problem.seed = suite->seed * 1000 + (uint64_t)number;
    one->sample = small ? 4 : 16;
    return 1;
}

/* ---- offsets beyond 32 bits ------------------------------------------------------------------ */

static const struct suite_case large[] = {
    SUITE_CASE("large: T x S above 2^31, few columns", "topk_select:topk=64", 16, .tokens = 300000,
               .rows = 8000),
    SUITE_CASE("large: T x S above 2^31, many columns", "topk_select:topk=2048", 16, .tokens = 2100,
               .rows = (1 << 20) + 5),
    SUITE_CASE("large: T x topk above 2^31", "topk_select:topk=4096,order=score", 16,
               .tokens = 530000, .rows = 100),
    {.name = NULL},
};

/* ---- launches -------------------------------------------------------------------------------- */

static const char *const launches[] = {"topk_select:topk=100", NULL};

/* Few long rows on some GPUs, so that workspace is used; many rows on others. */
/* ---- strides of billions ---------------------------------------------------------------------- */

static const struct suite_case far[] = {
    SUITE_FAR("topk_select:topk=100", .tokens = 2, .rows = 33000, .own = {0, RANDOM, 1}),
    SUITE_FAR("topk_select:topk=100,groups=2,pinned=1,expand=4,tail=1", .tokens = 2, .rows = 3300,
              .own = {0, RANDOM, 1}),
    {.spec = ""},
};

/* ---- one launch a thousand times: nothing depends on who comes first ------------------------- */

static const struct suite_case repeated[] = {
    SUITE_CASE(NULL, "topk_select:topk=100", 0, .tokens = 3, .rows = 70000,
               .own = {SMELT__TOPK_LEVELS, WHOLE, 1}),
    {.spec = ""},
};

const struct suite_operator suite_operator_topk_select = {
    .matrix = matrix_case,
    .large = large,
    .launches = launches,
    .launch = {.tokens = 40, .rows = 60000, .own[WINDOWS] = RANDOM, .own[VALUES] = 1},
    .quick_launch = {.tokens = 2, .rows = 33000, .own[WINDOWS] = RANDOM, .own[VALUES] = 1},
    .far = far,
    .repeated = repeated};
