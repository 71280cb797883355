/* indexer_loss's cases of the GPU suite. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/random.h"
#include "ops/indexer_loss_table.h"
#include "smelt/indexer_loss.h"
#include "suite.h"
#include "training_chain.h"

#define TENSOR(name) SMELT__INDEXER_LOSS_##name

enum { SCORES, WEIGHTED, OUTPUTS }; /* the operator's own options */
enum { FAR_OFF, TRAINED, ODD };
enum { GRAD, QUERIES, LOSS_ALONE };

/* ---- matrix ---------------------------------------------------------------------------------- */

/* Around the sizes of warps, vectors and parts: rows in one warp, in several, in two parts; widths
 * that are not multiples of a vector. */
static const struct suite_case small_cases[] = {
#define CASE(spec_, T, width_, scores, lists_, weighted, outputs, strided_, length)                \
    {                                                                                              \
        .spec = "indexer_loss:topk=" spec_, .problem = {                                           \
            .tokens = (T),                                                                         \
            .width = (width_),                                                                     \
            .lists = SMELT__LISTS_##lists_,                                                        \
            .strided = (strided_),                                                                 \
            .topk_length = (length),                                                               \
            .own = {scores, weighted, outputs}                                                     \
        }                                                                                          \
    }
    CASE("1", 3, 1, FAR_OFF, RANDOM, 0, QUERIES, 0, 0),
    CASE("100", 33, 100, ODD, ADVERSARIAL, 1, QUERIES, 0, 0),
    CASE("100", 29, 99, ODD, ADVERSARIAL, 1, GRAD, 1, 1),
    CASE("256", 5, 256, TRAINED, CAUSAL, 0, GRAD, 0, 1),
    CASE("257", 5, 257, FAR_OFF, LOG, 1, LOSS_ALONE, 0, 1),
    CASE("2048", 3, 2048, TRAINED, DRIFT, 1, QUERIES, 0, 0),
    CASE("2048", 4, 2044, FAR_OFF, ADVERSARIAL, 0, GRAD, 0, 1),
    CASE("2048,vectors=4,blocks=2", 3, 2047, ODD, RANDOM, 1, QUERIES, 1, 0),
    CASE("2048,vectors=1", 3, 2048, FAR_OFF, WINDOW, 0, GRAD, 0, 0),
    CASE("9000,vectors=2", 2, 9000, TRAINED, CAUSAL, 0, QUERIES, 0, 0),
    CASE("17000", 2, 16999, FAR_OFF, ADVERSARIAL, 1, QUERIES, 1, 1),
};

static const int all_topk[] = {1, 31, 512, 700, 1152, 2048, 4096, 8192, 16384, 40000};

/* Combinations of all settings, cyclically. */
static void large_matrix_case(const struct suite *suite, int number, struct suite_case *one) {
    struct smelt__random random = smelt__random_at(suite->seed, 11, (uint64_t)number);
    const int topk = all_topk[number % COUNT(all_topk)];
    snprintf(one->spec, sizeof one->spec, "indexer_loss:topk=%d", topk);
    one->problem.tokens = 1 + smelt__random_below(&random, topk > 8192 ? 200 : 3000);
    one->problem.width =
        smelt__random_below(&random, 2) ? topk : 1 + smelt__random_below(&random, topk);
    one->problem.lists = (enum smelt__lists)smelt__random_below(&random, SMELT__LISTS_KINDS);
    one->problem.strided = smelt__random_below(&random, 3) == 0;
    one->problem.topk_length = smelt__random_below(&random, 3) == 0;
    one->problem.own[SCORES] = smelt__random_below(&random, 3);
    one->problem.own[WEIGHTED] = smelt__random_below(&random, 2);
    one->problem.own[OUTPUTS] = smelt__random_below(&random, 3);
}

static int matrix_case(const struct suite *suite, int number, struct suite_case *one) {
    enum { CASES = 120 };
    const int small = suite->quick || suite->emulated;
    if (number >= (small ? COUNT(small_cases) : CASES))
        return 0;
    if (small)
        *one = small_cases[number];
    else
        large_matrix_case(suite, number, one);
    one->problem.seed = suite->seed * 1000 + (uint64_t)number;
    one->sample = 64;
    return 1;
}

/* ---- offsets beyond 32 bits ------------------------------------------------------------------ */

static const struct suite_case large[] = {
    SUITE_CASE("large: indexer_loss, T x width above 2^31", "indexer_loss:topk=2048", 1000,
               .tokens = (1 << 20) + 77, .own = {[OUTPUTS] = QUERIES}),
    {.name = NULL},
};

/* ---- launches -------------------------------------------------------------------------------- */

static const char *const launches[] = {"indexer_loss:topk=100", NULL};

static const struct suite_case repeated[] = {
    SUITE_CASE(NULL, "indexer_loss:topk=1152", 0, .tokens = 3000, .own[OUTPUTS] = QUERIES),
    {.spec = ""},
};

/* ---- strides of billions ---------------------------------------------------------------------- */

#define FAR(topk_length_, outputs)                                                                 \
    SUITE_FAR("indexer_loss:topk=100", .tokens = 5, .rows = 100, .topk_length = (topk_length_),    \
              .own = {FAR_OFF, 1, outputs})
static const struct suite_case far[] = {FAR(1, GRAD), FAR(0, QUERIES), {.spec = ""}};

/* ---- the same bits --------------------------------------------------------------------------- */

/* Whether the first queries have the same losses and gradients in two runs. */
static int same_queries(const struct smelt__placed *a, const struct smelt__placed *b,
                        int64_t queries) {
    const size_t bytes = (size_t)a->problem->options.width * sizeof(float);
    for (int64_t query = 0; query < queries; query++)
        if (memcmp(smelt__placed_row(a, TENSOR(GRAD), query, 0, 0),
                   smelt__placed_row(b, TENSOR(GRAD), query, 0, 0), bytes) != 0)
            return 0;
    return memcmp(smelt__placed_row(a, TENSOR(LOSSES), 0, 0, 0),
                  smelt__placed_row(b, TENSOR(LOSSES), 0, 0, 0),
                  (size_t)queries * sizeof(float)) == 0;
}

static uint32_t loss_bits(const struct smelt__placed *placed) {
    uint32_t bits;
    memcpy(&bits, smelt__placed_row(placed, TENSOR(LOSS), 0, 0, 0), sizeof bits);
    return bits;
}

/* Compares a run with one with other options or arguments: the first `queries` queries, and the
 * loss if these are all. */
static void compare_runs(struct suite *suite, const struct workload *base,
                         const struct smelt__problem_options *options, int64_t queries,
                         int free_multiprocessors, char *message, size_t size) {
    struct workload other;
    if (message[0] ||
        workload_open(&other, suite, "indexer_loss:topk=700", options, message, size) != 0)
        return;
    smelt_indexer_loss_args *const args = other.placed.args;
    args->tokens = queries;
    args->free_multiprocessors = free_multiprocessors;
    if (suite_ok(smelt__placed_run(&other.placed, other.object, NULL), "launch", message, size) ==
        0) {
        if (!same_queries(&base->placed, &other.placed, queries))
            snprintf(message, size,
                     "%lld queries, strided %d, %d multiprocessors left free: "
                     "other bits",
                     (long long)queries, options->strided, free_multiprocessors);
        else if (queries == base->problem.computed &&
                 loss_bits(&base->placed) != loss_bits(&other.placed))
            snprintf(message, size, "the loss has other bits");
    }
    workload_close(&other);
}

/* A query's results must not depend on the other queries, the layout (vectors or single slots) or
 * the number of thread blocks; nor must the loss. */
static void run_same_bits(struct suite *suite) {
    const int64_t tokens = suite->quick || suite->emulated ? 41 : 3001;
    struct smelt__problem_options options = {
        .seed = suite->seed, .tokens = tokens, .topk_length = 1, .own = {FAR_OFF, 1, QUERIES}};
    struct workload base;
    char message[1024] = "";
    if (!suite_wants(suite, "same bits: indexer_loss"))
        return;
    if (workload_open(&base, suite, "indexer_loss:topk=700", &options, message, sizeof message) ==
        0) {
        struct smelt__problem_options strided = options;
        strided.strided = 1;
        suite_ok(smelt__placed_run(&base.placed, base.object, NULL), "launch", message,
                 sizeof message);
        compare_runs(suite, &base, &options, tokens, 1 << 20, message, sizeof message);
        compare_runs(suite, &base, &options, 5, 0, message, sizeof message);
        compare_runs(suite, &base, &strided, tokens, 0, message, sizeof message);
        workload_close(&base);
    }
    suite_report(suite, "same bits: indexer_loss", message);
}

/* ---- no query at all ------------------------------------------------------------------------- */

static void run_empty(struct suite *suite) {
    const struct smelt__problem_options options = {
        .seed = suite->seed, .tokens = 3, .own = {FAR_OFF, 0, GRAD}};
    struct workload workload;
    char message[1024] = "";
    if (!suite_wants(suite, "no queries: indexer_loss"))
        return;
    if (workload_open(&workload, suite, "indexer_loss:topk=100", &options, message,
                      sizeof message) == 0) {
        smelt_indexer_loss_args *const args = workload.placed.args;
        args->tokens = 0;
        if (suite_ok(smelt__placed_run(&workload.placed, workload.object, NULL), "launch", message,
                     sizeof message) == 0 &&
            loss_bits(&workload.placed) != 0)
            snprintf(message, sizeof message, "the loss of no query is not 0");
        workload_close(&workload);
    }
    suite_report(suite, "no queries: indexer_loss", message);
}

static const struct suite_group groups[] = {{"same bits", run_same_bits},
                                            {"empty", run_empty},
                                            {"chain", run_training_chain},
                                            {NULL, NULL}};

const struct suite_operator suite_operator_indexer_loss = {.matrix = matrix_case,
                                                           .large = large,
                                                           .repeated = repeated,
                                                           .quick_repeated = {.tokens = 9},
                                                           .launches = launches,
                                                           .launch = {.tokens = 5000},
                                                           .quick_launch = {.tokens = 20},
                                                           .far = far,
                                                           .groups = groups};
