/* indexer_clean's cases of the GPU suite. */
#include <stdio.h>

#include "smelt/indexer_clean.h"
#include "suite.h"

/* Rows of less than 16 bytes, of one item, of several items, and of one more key. */
static const int64_t sizes[] = {1, 3, 531, 8192, 20001};
static const enum smelt__lists kinds[] = {SMELT__LISTS_RANDOM, SMELT__LISTS_ADVERSARIAL,
                                          SMELT__LISTS_CAUSAL, SMELT__LISTS_FULL};

static int matrix_case(const struct suite *suite, int number, struct suite_case *one) {
    if (number >= COUNT(sizes) * COUNT(kinds))
        return 0;
    snprintf(one->spec, sizeof one->spec, "indexer_clean");
    one->problem.seed = suite->seed * 1000 + (uint64_t)number;
    one->problem.tokens = suite->emulated ? 13 : 300;
    one->problem.rows = sizes[number % COUNT(sizes)];
    one->problem.lists = kinds[number / COUNT(sizes)];
    one->problem.strided = number % 2;
    one->sample = 300;
    return 1;
}

static const struct suite_case large[] = {
    SUITE_CASE("large: clean, T x S above 2^31", "indexer_clean", 0, .tokens = 2100,
               .rows = (1 << 20) + 5),
    {.name = NULL},
};

static const char *const launches[] = {"indexer_clean", NULL};

static const struct suite_case far[] = {
    SUITE_FAR("indexer_clean", .tokens = 9, .rows = 100),
    {.spec = ""},
};

const struct suite_operator suite_operator_indexer_clean = {
    .matrix = matrix_case,
    .large = large,
    .launches = launches,
    .launch = {.tokens = 500, .rows = 9000, .lists = SMELT__LISTS_CAUSAL},
    .quick_launch = {.tokens = 9, .rows = 300, .lists = SMELT__LISTS_CAUSAL},
    .far = far};
