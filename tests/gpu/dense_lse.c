/* dense_lse in the GPU suite: what its cases are. */
#include <stdio.h>

#include "harness/random.h"
#include "ops/dense_lse_table.h"
#include "suite.h"

static const char *const shapes[] = {"heads=64,dqk=576",
                                     "heads=128,dqk=512",
                                     "heads=5,dqk=80",
                                     "heads=1,dqk=16",
                                     "heads=64,dqk=128,kv_heads=4",
                                     "heads=24,dqk=256,kv_heads=2",
                                     "heads=192,dqk=96",
                                     "heads=6,dqk=1024,kv_heads=2",
                                     "heads=3,dqk=576,block_rows=32",
                                     "heads=12,dqk=192,kv_heads=4,slabs=1,stages=2",
                                     "heads=40,dqk=320,row_tiles=4"};
static const enum smelt__lists kinds[] = {SMELT__LISTS_CAUSAL, SMELT__LISTS_RANDOM,
                                          SMELT__LISTS_ADVERSARIAL, SMELT__LISTS_FULL,
                                          SMELT__LISTS_WINDOW};

static int matrix_case(const struct suite *suite, int number, struct suite_case *one) {
    const int repeats = suite->quick || suite->emulated ? 1 : 4;
    struct smelt__problem_options *problem = &one->problem;
    struct smelt__random random = smelt__random_at(suite->seed, 41, (uint64_t)number);
    if (number >= COUNT(shapes) * repeats)
        return 0;
    snprintf(one->spec, sizeof one->spec, "dense_lse:%s", shapes[number % COUNT(shapes)]);
    one->sample = 24;
    problem->seed = suite->seed * 1000 + (uint64_t)number;
    problem->tokens = PICK(&random, 1, 9, 130, 333);
    problem->rows = PICK(&random, 1, 130, 500, 1051);
    problem->lists = kinds[number % COUNT(kinds)];
    problem->strided = number % 3 == 1;
    if (suite->emulated || suite->quick) {
        problem->tokens = problem->tokens > 6 ? 6 : problem->tokens;
        problem->rows = problem->rows > 300 ? 300 : problem->rows;
    }
    return 1;
}

static const struct suite_case large[] = {
    SUITE_CASE("large: dense_lse, T x H x dqk above 2^31", "dense_lse:heads=128,dqk=576", 16,
               .tokens = 30000, .rows = 300),
    {.name = NULL},
};

static const char *const launches[] = {"dense_lse:heads=16,dqk=128", NULL};

static const struct suite_case far[] = {
    SUITE_FAR("dense_lse:heads=4,dqk=64,kv_heads=2", .tokens = 9, .rows = 100),
    {.spec = ""},
};

const struct suite_operator suite_operator_dense_lse = {.matrix = matrix_case,
                                                        .large = large,
                                                        .launches = launches,
                                                        .launch = {.tokens = 200, .rows = 3000},
                                                        .quick_launch = {.tokens = 5, .rows = 200},
                                                        .far = far};
