/* indexer_scores in the GPU suite: what its cases are. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "harness/random.h"
#include "indexer_training_groups.h"
#include "ops/indexer_scores_table.h"
#include "parts.h"
#include "refusals.h"
#include "smelt/indexer_scores.h"
#include "suite.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* ---- matrix: heads x widths x variants, lists and sizes in turn ------------------------------ */

static const int all_heads[] = {1, 3, 8, 16, 20, 32, 64, 71, 127, 128};
static const int quick_heads[] = {3, 32};
static const char *const shapes[] = {"dim=128,topk=2048", "dim=64,topk=2048",
                                     "dim=128,topk=2048,variant=mma",
                                     "dim=64,topk=2048,variant=mma"};

static int64_t pick(struct smelt__random *random, const int64_t *values, int count) {
    return values[smelt__random_below(random, count)];
}

static int matrix_case(const struct suite *suite, int number, struct suite_case *one) {
    const int heads = suite->quick ? COUNT(quick_heads) : COUNT(all_heads);
    const int repeats = suite->quick ? 2 : SMELT__LISTS_KINDS;
    struct smelt__problem_options *problem = &one->problem;
    struct smelt__random random = smelt__random_at(suite->seed, 7, (uint64_t)number);
    const int shape = number % COUNT(shapes), head = number / COUNT(shapes) % heads;
    if (number >= heads * COUNT(shapes) * repeats)
        return 0;
    snprintf(one->spec, sizeof one->spec, "indexer_scores:heads=%d,%s",
             suite->quick ? quick_heads[head] : all_heads[head], shapes[shape]);
    one->sample = suite->quick ? 8 : 24;
    problem->seed = suite->seed * 1000 + (uint64_t)number;
    problem->tokens = pick(&random, (const int64_t[]){1, 9, 130, 333}, 4);
    problem->width = pick(&random, (const int64_t[]){1, 64, 129, 1000, 2048}, 5);
    problem->rows = pick(&random, (const int64_t[]){1, 130, 3000}, 3);
    problem->lists = (enum smelt__lists)((number + head) % SMELT__LISTS_KINDS);
    problem->topk_length = number / 2 % 2;
    problem->strided = number % 3 == 1;
    if (suite->emulated) {
        problem->tokens = problem->tokens > 7 ? 7 : problem->tokens;
        problem->width = problem->width > 300 ? 300 : problem->width;
        problem->rows = problem->rows > 300 ? 300 : problem->rows;
    }
    return 1;
}

/* ---- offsets beyond 32 bits ------------------------------------------------------------------ */

static const struct suite_case large[] = {
    {.name = "large: indexer_scores, T x width above 2^31",
     .spec = "indexer_scores:heads=1,dim=64,topk=8192",
     .sample = 16,
     .problem = {.tokens = 263000, .rows = 500, .width = 8192}},
    {.name = "large: indexer_scores, T x H x D above 2^31",
     .spec = "indexer_scores:heads=128,dim=128,topk=64",
     .sample = 16,
     .problem = {.tokens = 140000, .rows = 300, .width = 64}},
    {.name = "large: indexer_scores, S x D above 2^31",
     .spec = "indexer_scores:heads=2,dim=128,topk=2048",
     .sample = 16,
     .problem = {.tokens = 5, .rows = (1 << 24) + 77, .width = 2048}},
    {.name = NULL},
};

static const struct suite_case far[] = {
    {.name = "far: indexer_scores",
     .spec = "indexer_scores:heads=5,dim=128,topk=200",
     .problem = {.tokens = 5, .rows = 40, .lists = SMELT__LISTS_ADVERSARIAL}},
    {.name = "far: indexer_scores, variant mma",
     .spec = "indexer_scores:heads=5,dim=64,topk=100,variant=mma",
     .problem = {.tokens = 5, .rows = 40, .lists = SMELT__LISTS_ADVERSARIAL, .topk_length = 1}},
    {.name = NULL},
};

/* ---- launches -------------------------------------------------------------------------------- */

static const char *const launches[] = {"indexer_scores:heads=16,dim=128,topk=300", NULL};

static void launch_options(const struct suite *suite, struct smelt__problem_options *options) {
    options->tokens = suite->quick || suite->emulated ? 9 : 200;
    options->rows = suite->emulated ? 300 : 3000;
}

/* ---- a logit depends on its query and its key alone ------------------------------------------ */

enum { CUT_QUERIES = 3, CUT_SLOTS = 37 }; /* from the front */

/* The same call without its first queries and slots, into the same memory. */
static smelt_status launch_part(const struct workload *workload, struct CUstream_st *stream) {
    const struct smelt__indexer_scores_spec *spec = workload->spec.spec;
    smelt_indexer_scores_args args = *(const smelt_indexer_scores_args *)workload->placed.args;
    const int64_t width = args.width, query = (int64_t)spec->heads * spec->dim;
    args.tokens -= CUT_QUERIES;
    args.width -= CUT_SLOTS;
    args.q.data = (const uint16_t *)args.q.data + CUT_QUERIES * query;
    args.weights.data = (const float *)args.weights.data + CUT_QUERIES * spec->heads;
    args.indices.data = (const int32_t *)args.indices.data + CUT_QUERIES * width + CUT_SLOTS;
    args.indices.strides[0] = args.logits.strides[0] = width;
    return smelt_operator_launch(workload->object, workload->pass->pass, &args, stream);
}

static void compare_parts(const struct workload *workload, const float *whole, char *message,
                          size_t size) {
    const int64_t tokens = workload->problem.options.tokens;
    const int64_t width = workload->problem.options.width;
    for (int64_t t = 0; t < tokens - CUT_QUERIES; t++) {
        const float *const part =
            smelt__placed_row(&workload->placed, SMELT__INDEXER_SCORES_LOGITS, t, 0, 0);
        if (memcmp(part, whole + (t + CUT_QUERIES) * width + CUT_SLOTS,
                   (size_t)(width - CUT_SLOTS) * sizeof *part) != 0)
            snprintf(message, size, "query %lld has other bits beside other queries and slots",
                     (long long)t);
    }
}

static void run_invariance(struct suite *suite) {
    static const char *const named[][2] = {
        {"invariance: indexer_scores", "indexer_scores:heads=12,dim=128,topk=2048"},
        {"invariance: indexer_scores, variant mma",
         "indexer_scores:heads=9,dim=64,topk=2048,variant=mma"},
    };
    const int small = suite->emulated || suite->quick;
    for (int i = 0; i < COUNT(named); i++) {
        const struct part part = {.name = named[i][0],
                                  .spec = named[i][1],
                                  .problem = {.seed = suite->seed,
                                              .tokens = small ? 7 : 300,
                                              .rows = small ? 200 : 3000,
                                              .width = small ? 200 : 2048,
                                              .lists = SMELT__LISTS_ADVERSARIAL},
                                  .output = SMELT__INDEXER_SCORES_LOGITS,
                                  .launch = launch_part,
                                  .compare = compare_parts};
        run_part(suite, &part);
    }
}

/* ---- what it must refuse, naming the argument ------------------------------------------------ */

#define SET(field, value) REFUSED(smelt_indexer_scores_args, field, value)
#define SET_AS(field, part, value) REFUSED_AS(smelt_indexer_scores_args, field, part, value)

static const struct refused_change changes[] = {
    SET(size, 3),
    SET(tokens, -1),
    SET(tokens, (int64_t)INT_MAX + 1),
    SET(rows, -1),
    SET(rows, (int64_t)INT_MAX + 1),
    SET(width, 0),
    SET_AS(width, "topk=100", 101),
    SET(free_multiprocessors, -1),
    SET(reserved, 1),
    SET_AS(q.data, "q is NULL", 0),
    SET_AS(q.data, "16 bytes", 0x1008),
    SET(q.strides[0], -8),
    SET(q.strides[1], 60),
    SET(q.strides[0], 12),
    SET_AS(k.data, "k is NULL", 0),
    SET_AS(k.data, "16 bytes", 0x1004),
    SET(k.strides[0], 56),
    SET(k.strides[0], (int64_t)1 << 31),
    SET_AS(weights.data, "weights is NULL", 0),
    SET_AS(weights.data, "4 bytes", 0x1002),
    SET(weights.strides[0], 2),
    SET_AS(indices.data, "indices is NULL", 0),
    SET_AS(indices.data, "4 bytes", 0x1002),
    SET(indices.strides[0], 99),
    SET_AS(topk_length.data, "4 bytes", 0x1002),
    SET_AS(logits.data, "logits is NULL", 0),
    SET_AS(logits.data, "4 bytes", 0x1002),
    SET(logits.strides[0], 99),
    SET(logits.strides[0], INT64_MAX / 2),
};
static const size_t inputs[] = {
    offsetof(smelt_indexer_scores_args, q), offsetof(smelt_indexer_scores_args, k),
    offsetof(smelt_indexer_scores_args, weights), offsetof(smelt_indexer_scores_args, indices)};

static void run_arguments(struct suite *suite) {
    static const struct refusals refused = {.name = "arguments: indexer_scores",
                                            .spec = "indexer_scores:heads=3,dim=64,topk=100",
                                            .problem = {.tokens = 9, .rows = 100},
                                            .changes = changes,
                                            .count = COUNT(changes),
                                            .output = offsetof(smelt_indexer_scores_args, logits),
                                            .inputs = inputs,
                                            .input_count = COUNT(inputs)};
    run_refusals(suite, &refused);
}

/* ---- the row --------------------------------------------------------------------------------- */

static const struct suite_group groups[] = {{"invariance", run_invariance},
                                            {"boundaries", run_indexer_scores_boundaries},
                                            {"arguments", run_arguments},
                                            {NULL, NULL}};

const struct suite_operator suite_operator_indexer_scores = {.matrix = matrix_case,
                                                             .large = large,
                                                             .far = far,
                                                             .launches = launches,
                                                             .launch = launch_options,
                                                             .groups = groups};
