/* indexer_clean in the GPU suite: what its cases are. */
#include <stdio.h>

#include "indexer_arguments.h"
#include "suite.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* Rows of less than 16 bytes, of one item, of several, of one more key than those. */
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
    {.name = "large: clean, T x S above 2^31",
     .spec = "indexer_clean",
     .problem = {.tokens = 2100, .rows = (1 << 20) + 5}},
    {.name = NULL},
};

static const struct suite_case far[] = {
    {.name = "far: clean", .spec = "indexer_clean", .problem = {.tokens = 11, .rows = 300}},
    {.name = NULL},
};

static const char *const launches[] = {"indexer_clean", NULL};

static void launch_options(const struct suite *suite, struct smelt__problem_options *options) {
    options->tokens = suite->quick || suite->emulated ? 9 : 500;
    options->rows = suite->emulated ? 300 : 9000;
    options->lists = SMELT__LISTS_CAUSAL;
}

/* And those of the operators beside it. */
static const struct suite_group groups[] = {{"arguments", run_indexer_arguments}, {NULL, NULL}};

const struct suite_operator suite_operator_indexer_clean = {.matrix = matrix_case,
                                                            .large = large,
                                                            .far = far,
                                                            .launches = launches,
                                                            .launch = launch_options,
                                                            .groups = groups};
