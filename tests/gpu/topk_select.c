/* topk_select in the GPU suite: what its cases are. */
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

/* On the emulator: each way through the kernels, with the data that leads there. Rows beside the
 * sizes of lists (2048, 4096, 6144 entries), of the map (65536 elements), of windows that pass
 * merge reads alone (12288); several blocks for few rows from 32768 columns on. */
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
};

static const int all_topk[] = {1, 31, 512, 700, 2048, 3000, 4096};
static const int64_t all_rows[] = {1, 77, 2048, 4097, 8192, 20001, 32768, 65537, 100003, 300000};

/* Everything with everything, in turn. */
static void large_matrix_case(const struct suite *suite, int number, struct suite_case *one) {
    struct smelt__random random = smelt__random_at(suite->seed, 7, (uint64_t)number);
    snprintf(one->spec, sizeof one->spec, "topk_select:topk=%d%s",
             all_topk[number % COUNT(all_topk)],
             smelt__random_below(&random, 3) ? "" : ",order=score");
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
    {.name = "large: T x S above 2^31, few columns",
     .spec = "topk_select:topk=64",
     .sample = 16,
     .problem = {.tokens = 300000, .rows = 8000}},
    {.name = "large: T x S above 2^31, many columns",
     .spec = "topk_select:topk=2048",
     .sample = 16,
     .problem = {.tokens = 2100, .rows = (1 << 20) + 5}},
    {.name = "large: T x topk above 2^31",
     .spec = "topk_select:topk=4096,order=score",
     .sample = 16,
     .problem = {.tokens = 530000, .rows = 100}},
    {.name = NULL},
};

static const struct suite_case far[] = {
    {.name = "far: topk_select, a block a row",
     .spec = "topk_select:topk=100",
     .problem = {.tokens = 5, .rows = 2500, .own = {[VALUES] = 1, [WINDOWS] = RANDOM}}},
    {.name = "far: topk_select, several blocks a row",
     .spec = "topk_select:topk=100",
     .problem = {.tokens = 2, .rows = 33000, .own = {[VALUES] = 1, [WINDOWS] = WHOLE}}},
    {.name = NULL},
};

/* ---- launches -------------------------------------------------------------------------------- */

static const char *const launches[] = {"topk_select:topk=100", NULL};

/* Few rows and long ones for some GPUs, so that workspace is used; many for others. */
/* ---- what a launch must refuse --------------------------------------------------------------- */

static const struct suite_refusal refusals[] = {
    SUITE_REFUSAL(smelt_topk_select_args, reserved, "reserved", 1),
    SUITE_REFUSAL(smelt_topk_select_args, rows, "rows", (INT64_C(1) << 30) + 1),
    SUITE_REFUSAL(smelt_topk_select_args, window_begin.data, "window_begin", 0),
    SUITE_REFUSAL(smelt_topk_select_args, window_end.data, "window_end", 0),
    {.text = NULL},
};

static const struct suite_arguments arguments[] = {
    {.spec = "topk_select:topk=100",
     .problem = {.tokens = 2, .rows = 33000, .own = {0, RANDOM, 1}},
     .aligned = "",
     .refusals = refusals},
    {.spec = NULL},
};

/* ---- one launch a thousand times: nothing depends on who comes first ------------------------- */

static void run_repeated(struct suite *suite) {
    const int repeats = suite->quick || suite->emulated ? 3 : 1000;
    struct smelt__problem_options options = {.seed = suite->seed, .tokens = 3, .rows = 70000};
    struct workload workload;
    char message[1024] = "";
    options.own[DATA] = SMELT__TOPK_LEVELS;
    options.own[VALUES] = 1;
    if (!suite_wants(suite, "repetitions: topk_select"))
        return;
    if (workload_open(&workload, suite, "topk_select:topk=100", &options, message,
                      sizeof message) == 0) {
        uint64_t first = 0;
        for (int i = 0; i < repeats && !message[0]; i++) {
            if (suite_ok(smelt__placed_run(&workload.placed, workload.object, NULL), "forward",
                         message, sizeof message))
                break;
            const uint64_t bits = smelt__placed_digest(&workload.placed);
            if (i == 0)
                first = bits;
            else if (bits != first)
                snprintf(message, sizeof message, "run %d has other bits than the first", i);
        }
        if (!message[0])
            workload_judge(&workload, message, sizeof message);
        workload_close(&workload);
    }
    suite_report(suite, "repetitions: topk_select", message);
}

static const struct suite_group groups[] = {{"repetitions", run_repeated}, {NULL, NULL}};

const struct suite_operator suite_operator_topk_select = {
    .matrix = matrix_case,
    .large = large,
    .far = far,
    .launches = launches,
    .launch = {.tokens = 40, .rows = 60000, .own[WINDOWS] = RANDOM, .own[VALUES] = 1},
    .quick_launch = {.tokens = 2, .rows = 33000, .own[WINDOWS] = RANDOM, .own[VALUES] = 1},
    .arguments = arguments,
    .groups = groups};
