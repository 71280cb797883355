/* indexer_bwd's cases of the GPU suite. */
#include <stdio.h>

#include "harness/random.h"
#include "indexer_training_groups.h"
#include "smelt/indexer_bwd.h"
#include "suite.h"

/* ---- matrix: heads x widths, deterministic or not; lists and sizes in turn ------------------- */

static const int all_heads[] = {1, 5, 8, 16, 24, 32, 48, 64, 80, 127, 128};
static const int quick_heads[] = {3, 24, 64};
static const char *const types[] = {"dim=128,topk=2048",
                                    "dim=64,topk=2048,deterministic=1,exact_groups=2",
                                    "dim=128,topk=300,weights_dtype=bf16,deterministic=1",
                                    "dim=32,topk=100,activation=none,granularity=2"};
static const enum smelt__lists kinds[] = {
    SMELT__LISTS_RANDOM, SMELT__LISTS_CAUSAL, SMELT__LISTS_ADVERSARIAL, SMELT__LISTS_DRIFT,
    SMELT__LISTS_PACKED, SMELT__LISTS_WINDOW, SMELT__LISTS_LOG};

static int matrix_case(const struct suite *suite, int number, struct suite_case *one) {
    const int heads = suite->quick ? COUNT(quick_heads) : COUNT(all_heads);
    const int repeats = suite->quick ? 2 : COUNT(kinds);
    struct smelt__problem_options *problem = &one->problem;
    struct smelt__random random = smelt__random_at(suite->seed, 16, (uint64_t)number);
    const int type = number % COUNT(types), head = number / COUNT(types) % heads;
    if (number >= heads * COUNT(types) * repeats)
        return 0;
    snprintf(one->spec, sizeof one->spec, "indexer_bwd:heads=%d,%s",
             suite->quick ? quick_heads[head] : all_heads[head], types[type]);
    one->sample = suite->quick ? 8 : 24;
    problem->seed = suite->seed * 1000 + (uint64_t)number;
    problem->tokens = PICK(&random, 1, 9, 130, 333);
    problem->rows = PICK(&random, 40, 130, 1000, 5051);
    problem->width = PICK(&random, 1, 64, 99, 100);
    problem->lists = kinds[(number + head) % COUNT(kinds)];
    problem->strided = number % 3 == 1;
    problem->topk_length = (int)smelt__random_below(&random, 2);
    problem->dkv = (enum smelt__dkv)smelt__random_below(&random, 3);
    problem->own[SMELT__LIMITS] = number / 3 % SMELT__LIMITS_KINDS;
    if (suite->emulated) {
        problem->tokens = problem->tokens > 9 ? 9 : problem->tokens;
        problem->rows = problem->rows > 400 ? 400 : problem->rows;
    }
    return 1;
}

/* ---- offsets beyond 32 bits ------------------------------------------------------------------ */

/* T x H x D, and T x width, pass 2^31 elements; more keys than a map of the lists holds. */
static const struct suite_case large[] = {
    SUITE_CASE("large: indexer_bwd, T x H x D above 2^31", "indexer_bwd:heads=128,dim=128,topk=64",
               4, .tokens = 140000, .rows = 300),
    SUITE_CASE("large: indexer_bwd, T x width above 2^31", "indexer_bwd:heads=40,dim=64,topk=4096",
               4, .tokens = 530000, .rows = 5000),
    SUITE_CASE("large: indexer_bwd, S x D above 2^31", "indexer_bwd:heads=33,dim=128,topk=64", 4,
               .tokens = 5, .rows = (1 << 24) + 77),
    SUITE_CASE("large: indexer_bwd, deterministic, T x width above 2^31",
               "indexer_bwd:heads=64,dim=64,topk=4096,deterministic=1", 4,
               /* keys that 434,000 queries select each: grains over many launches */ .tokens =
                   530000,
               .rows = 5000),
    {.name = NULL},
};

/* ---- one launch a thousand times ------------------------------------------------------------- */

/* Several items of each thread block. */
#define REPEATED(keys, tokens_)                                                                    \
    SUITE_CASE(NULL, "indexer_bwd:" keys, 0, .tokens = (tokens_), .rows = 3000)
static const struct suite_case repeated[] = {
    REPEATED("heads=64,dim=128,topk=640", 800),
    REPEATED("heads=64,dim=128,topk=640,deterministic=1", 800),
    REPEATED("heads=16,dim=128,topk=640,deterministic=1,exact_groups=99", 2000),
    REPEATED("heads=100,dim=64,topk=640,deterministic=1", 400),
    REPEATED("heads=32,dim=128,topk=640,deterministic=1,variant=mma", 800),
    {.spec = ""},
};

/* ---- launches -------------------------------------------------------------------------------- */

static const char *const launches[] = {
    "indexer_bwd:heads=16,dim=128,topk=100",
    "indexer_bwd:heads=64,dim=64,topk=100,deterministic=1",
    NULL,
};

/* ---- strides of billions ---------------------------------------------------------------------- */

#define FAR(keys)                                                                                  \
    SUITE_FAR("indexer_bwd:heads=3,dim=64,topk=50" keys, .tokens = 9, .rows = 100,                 \
              .topk_length = 1, .own = {SMELT__LIMITS_ODD})
static const struct suite_case far[] = {FAR(""), FAR(",deterministic=1"), {.spec = ""}};

/* ---- the row --------------------------------------------------------------------------------- */

static const struct suite_group groups[] = {
    {"boundaries", run_indexer_bwd_boundaries}, {"exact", run_indexer_bwd_exact}, {NULL, NULL}};

const struct suite_operator suite_operator_indexer_bwd = {
    .matrix = matrix_case,
    .large = large,
    .repeated = repeated,
    .quick_repeated = {.tokens = 12, .rows = 200, .width = 70},
    .launches = launches,
    .launch = {.tokens = 200, .rows = 3000},
    .quick_launch = {.tokens = 6, .rows = 200},
    .far = far,
    .groups = groups};
