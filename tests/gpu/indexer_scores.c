/* indexer_scores's cases of the GPU suite. */
#include <stdio.h>
#include <string.h>

#include "harness/random.h"
#include "indexer_training_groups.h"
#include "ops/indexer_scores_table.h"
#include "parts.h"
#include "smelt/indexer_scores.h"
#include "suite.h"

/* ---- matrix: heads x widths x variants, lists and sizes in turn ------------------------------ */

static const int all_heads[] = {1, 3, 8, 16, 20, 32, 64, 71, 127, 128};
static const int quick_heads[] = {3, 32};
static const char *const shapes[] = {"dim=128,topk=2048",
                                     "dim=64,topk=2048",
                                     "dim=128,topk=2048,variant=mma",
                                     "dim=64,topk=2048,variant=mma",
                                     "dim=128,topk=256,granularity=8,weights_dtype=bf16",
                                     "dim=32,topk=64,granularity=32,weights_dtype=bf16",
                                     "dim=128,topk=64,granularity=128,block_max=128",
                                     "dim=64,topk=64,granularity=8,block_max=4,variant=mma"};

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
    problem->tokens = PICK(&random, 1, 9, 130, 333);
    problem->width = PICK(&random, 1, 64, 129, 1000, 2048);
    if (strstr(one->spec, "granularity"))
        problem->width = PICK(&random, 1, 7, 33, 64);
    problem->rows = PICK(&random, 1, 130, 3000);
    problem->lists = (enum smelt__lists)((number + head) % SMELT__LISTS_KINDS);
    problem->topk_length = number / 2 % 2;
    problem->own[SMELT__LIMITS] = number / 3 % SMELT__LIMITS_KINDS;
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
    SUITE_CASE("large: indexer_scores, T x width above 2^31",
               "indexer_scores:heads=1,dim=64,topk=8192", 16, .tokens = 263000, .rows = 500,
               .width = 8192),
    SUITE_CASE("large: indexer_scores, T x H x D above 2^31",
               "indexer_scores:heads=128,dim=128,topk=64", 16, .tokens = 140000, .rows = 300,
               .width = 64),
    SUITE_CASE("large: indexer_scores, S x D above 2^31",
               "indexer_scores:heads=2,dim=128,topk=2048", 16, .tokens = 5, .rows = (1 << 24) + 77,
               .width = 2048),
    {.name = NULL},
};

/* ---- launches -------------------------------------------------------------------------------- */

static const char *const launches[] = {"indexer_scores:heads=16,dim=128,topk=300", NULL};

/* ---- a logit depends on its query and its key alone ------------------------------------------ */

enum { CUT_QUERIES = 3, CUT_SLOTS = 37 }; /* from the front */

/* The same call without its first queries and slots, writing to the same memory. */
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
                                  .queries = CUT_QUERIES,
                                  .columns = CUT_SLOTS};
        run_part(suite, &part);
    }
}

/* ---- strides of billions ---------------------------------------------------------------------- */

static const struct suite_case far[] = {
    SUITE_FAR("indexer_scores:heads=3,dim=64,topk=100", .tokens = 9, .rows = 100, .topk_length = 1,
              .own = {SMELT__LIMITS_ODD}),
    {.spec = ""},
};

/* ---- the row --------------------------------------------------------------------------------- */

static const struct suite_group groups[] = {
    {"invariance", run_invariance}, {"boundaries", run_indexer_scores_boundaries}, {NULL, NULL}};

const struct suite_operator suite_operator_indexer_scores = {
    .matrix = matrix_case,
    .large = large,
    .launches = launches,
    .launch = {.tokens = 200, .rows = 3000},
    .quick_launch = {.tokens = 9, .rows = 300},
    .far = far,
    .groups = groups};
