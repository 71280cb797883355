/* indexer_windows's cases of the GPU suite. */
#include <stdio.h>

#include "harness/defaults.h"
#include "suite.h"

/* Numbers of queries and documents: one of each; a block's number of queries, and one more; the
 * number of staged bounds (2048), one document less and one more; several times that. */
static const struct {
    int64_t tokens, documents;
} sizes[] = {{1, 1}, {256, 3}, {257, 2047}, {300, 2048}, {600, 7000}};

/* Each kind of metadata with each size. */
static int matrix_case(const struct suite *suite, int number, struct suite_case *one) {
    const struct smelt__harness_operator *op = smelt__harness_find("indexer_windows");
    const int size = number % COUNT(sizes);
    if (!op || !smelt__options_kind(op, number / COUNT(sizes), &one->problem))
        return 0;
    snprintf(one->spec, sizeof one->spec, "indexer_windows");
    one->problem.seed = suite->seed * 1000 + (uint64_t)number;
    one->problem.tokens = sizes[size].tokens;
    one->problem.documents = sizes[size].documents;
    /* Sometimes there are fewer keys than the windows have. */
    one->problem.rows = number % 3 ? 0 : 1 + sizes[size].tokens / 2;
    one->sample = 100;
    return 1;
}

/* Each kind of metadata has different tensors, so a graph cannot be replayed with another kind;
 * indexer_chain.c has a graph. */
static const char *const launches[] = {NULL};

/* ---- strides of billions ---------------------------------------------------------------------- */

/* A shard has every optional tensor. */
static const struct suite_case far[] = {
    SUITE_FAR("indexer_windows", .tokens = 300),
    {.spec = ""},
};

/* No large cases, because all tensors have one dimension, so offsets fit 32 bits. */
const struct suite_operator suite_operator_indexer_windows = {.matrix = matrix_case,
                                                              .launches = launches,
                                                              .launch = {.tokens = 5000},
                                                              .quick_launch = {.tokens = 300},
                                                              .far = far};
