/* The harness's row of indexer_bwd. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "harness/footprint.h"
#include "harness/grad_rows.h"
#include "harness/indexer.h"
#include "harness/normal.h"
#include "harness/operator.h"
#include "harness/parallel.h"
#include "harness/placed.h"
#include "harness/random.h"
#include "harness/slots.h"
#include "ops/indexer_bwd_table.h"
#include "reference/bf16.h"
#include "reference/operators.h"
#include "smelt/indexer_bwd.h"

#define TENSOR(name) SMELT__INDEXER_BWD_##name

static int granularity(const void *spec) {
    return ((const struct smelt__indexer_bwd_spec *)spec)->granularity;
}

static const struct smelt__slots slots = {TENSOR(INDICES), TENSOR(TOPK_LENGTH), granularity,
                                          TENSOR(LIMIT)};

/* ---- options --------------------------------------------------------------------------------- */

static const char *const options[] = {"width",       "valid", "documents", "lists",
                                      "topk-length", "dkv",   NULL};

#define LIMITS(kind) .own = {[SMELT__LIMITS] = SMELT__LIMITS_##kind}
static const struct smelt__problem_options kinds[] = {
    {.lists = SMELT__LISTS_RANDOM},
    {.lists = SMELT__LISTS_CAUSAL, LIMITS(CAUSAL)},
    {.lists = SMELT__LISTS_DRIFT, LIMITS(ODD)},
    {.lists = SMELT__LISTS_ADVERSARIAL},
    {.lists = SMELT__LISTS_CAUSAL, .topk_length = 1, .dkv = SMELT__DKV_ADD, LIMITS(CAUSAL)},
    {.lists = SMELT__LISTS_ADVERSARIAL, .topk_length = 1, .dkv = SMELT__DKV_FP32, LIMITS(ODD)},
};

/* ---- problems -------------------------------------------------------------------------------- */

enum { STREAM_Q = 1, STREAM_K, STREAM_WEIGHTS, STREAM_GRAD, STREAM_SUM, STREAM_ZERO };

/* With adversarial lists one key in so many consists of zeros, so that its products with queries
 * are exactly 0. */
enum { ZERO_ONE_IN = 8 };

static struct smelt__key_rows dk_rows(const struct smelt__problem *problem) {
    const struct smelt__indexer_bwd_spec *spec = problem->spec;
    return (struct smelt__key_rows){TENSOR(DK), TENSOR(DK_FP32), TENSOR(DK_SUM), spec->dim};
}

static int given(const struct smelt__problem *problem, int tensor) {
    const struct smelt__key_rows dk = dk_rows(problem);
    if (tensor == TENSOR(LIMIT))
        return problem->options.own[SMELT__LIMITS] != SMELT__LIMITS_NONE;
    return tensor == TENSOR(TOPK_LENGTH) ? problem->options.topk_length
                                         : smelt__key_rows_given(problem, &dk, tensor);
}

/* For queries without a valid slot, with adversarial lists: its products with most elements of q
 * are infinite. */
static const float HUGE_WEIGHT = 3e38F;

/* fp32 numbers that bf16 cannot represent. */
static void fill_weights(struct smelt__problem *problem, int64_t query) {
    const struct smelt__indexer_bwd_spec *spec = problem->spec;
    struct smelt__random random =
        smelt__random_at(problem->options.seed, STREAM_WEIGHTS, (uint64_t)query);
    const int huge = problem->options.lists == SMELT__LISTS_ADVERSARIAL &&
                     !smelt__slots_valid(problem, &slots, query);
    for (int h = 0; h < spec->heads; h++)
        smelt__indexer_store_weight(problem, TENSOR(WEIGHTS), query, h,
                                    huge ? HUGE_WEIGHT : 0.3F * smelt__normal_next(&random));
}

/* One gradient in so many is LARGE times as large, and the gradients of one key in so many are
 * 2^-QUIET times as large. A loss's gradients vary as much; a softmax's tail has the small ones. */
enum { LARGE_ONE_IN = 32, LARGE = 40, QUIET_ONE_IN = 16, QUIET = 20 };

/* NaN at masked slots, so that a kernel that reads one gives NaN. */
static void fill_grads(struct smelt__problem *problem, int64_t query) {
    const int64_t count = smelt__slots_count(problem, &slots);
    float *const grad = (float *)smelt__problem_data(problem, TENSOR(GRAD)) +
                        smelt__problem_at(problem, TENSOR(GRAD), query, 0, 0);
    struct smelt__random random =
        smelt__random_at(problem->options.seed, STREAM_GRAD, (uint64_t)query);
    for (int64_t i = 0; i < count; i++) {
        const int factor = smelt__random_below(&random, LARGE_ONE_IN) == 0 ? LARGE : 1;
        const float value = 0.07F * (float)factor * smelt__normal_next(&random);
        const int64_t row = smelt__slots_row(problem, &slots, query, i);
        const int quiet = row % QUIET_ONE_IN == QUIET_ONE_IN - 1;
        grad[i] = row < 0 ? NAN : quiet ? ldexpf(value, -QUIET) : value;
    }
}

static void fill_queries(void *user, int64_t begin, int64_t end) {
    struct smelt__problem *const problem = user;
    for (int64_t query = begin; query < end; query++) {
        fill_weights(problem, query);
        fill_grads(problem, query);
    }
}

static void fill_keys(struct smelt__problem *problem, const uint8_t *used) {
    smelt__normals_fill(problem, TENSOR(K), STREAM_K);
    smelt__unused_fill(problem, TENSOR(K), used);
    if (problem->options.lists != SMELT__LISTS_ADVERSARIAL)
        return;
    for (int64_t key = 0; key < problem->options.rows; key++) {
        struct smelt__random random =
            smelt__random_at(problem->options.seed, STREAM_ZERO, (uint64_t)key);
        if (smelt__random_below(&random, ZERO_ONE_IN) == 0 && used[key])
            memset((uint16_t *)smelt__problem_data(problem, TENSOR(K)) +
                       smelt__problem_at(problem, TENSOR(K), key, 0, 0),
                   0, (size_t)problem->extents[TENSOR(D)] * sizeof(uint16_t));
    }
}

static int fill(struct smelt__problem *problem) {
    const struct smelt__key_rows dk = dk_rows(problem);
    uint8_t *const used = calloc((size_t)problem->options.rows + 1, 1);
    int failed = !used;
    if (!failed) {
        smelt__slots_fill(problem, &slots);
        failed = smelt__slots_mark(problem, &slots, used);
    }
    if (!failed) {
        problem->computed = problem->extents[TENSOR(T)];
        smelt__normals_fill(problem, TENSOR(Q), STREAM_Q);
        smelt__parallel_for(problem->computed, 16, fill_queries, problem);
        fill_keys(problem, used);
    }
    free(used);
    return failed ? -1 : smelt__key_rows_fill(problem, &dk, STREAM_SUM);
}

static void footprint(const struct smelt__problem *problem, struct smelt__footprints *footprints) {
    smelt__slots_footprint(problem, &slots, TENSOR(K), TENSOR(GRAD), footprints);
}

/* dq and dweights are. dk's order of summation is not fixed unless the operator is
 * deterministic. */
static int reproducible(const struct smelt__problem *problem, int tensor) {
    const struct smelt__indexer_bwd_spec *spec = problem->spec;
    return spec->deterministic || tensor == TENSOR(DQ) || tensor == TENSOR(DWEIGHTS);
}

/* ---- figures --------------------------------------------------------------------------------- */

/* Three products of each slot's key with each head, and one pass over dk. */
static double multiplications(const void *spec, const struct smelt__problem_options *settings) {
    const struct smelt__indexer_bwd_spec *indexer = spec;
    const double pairs =
        (double)(settings->batches * settings->tokens * settings->width) * indexer->granularity;
    return pairs * indexer->heads * 3 * indexer->dim + (double)settings->rows * indexer->dim;
}

/* Measured on an H200: a large bf16 matrix product under sustained load, and fp32 reductions to
 * rows in the L2 cache. */
static const double TFLOPS_CEILING = 690, REDUCTION_TBS = 3.7;

/* Arithmetic: as above. Reduction: each slot's fp32 row once, although queries that share a tile
 * may reduce a common row. */
static int rates(const struct smelt__problem *problem,
                 struct smelt__rate found[SMELT__MOST_RATES]) {
    const struct smelt__indexer_bwd_spec *spec = problem->spec;
    const double terms = (double)problem->valid_slots * spec->dim;
    found[0] = SMELT__TFLOPS(2 * 3 * terms * spec->heads / 1e12, TFLOPS_CEILING);
    found[1] = SMELT__TBS("reduction", 2, terms * sizeof(float) / 1e12, REDUCTION_TBS);
    return 2;
}

/* ---- comparison ------------------------------------------------------------------------------ */

#define DQ SMELT__OF(TENSOR(DQ))
#define DK SMELT__KEY_ROWS(TENSOR(DK), TENSOR(DK_FP32), TENSOR(DK_SUM))

static const struct smelt__metric query_metrics[SMELT__INDEXER_QUERY_METRICS] = {
    SMELT__INDEXER_QUERY_METRIC_ROWS(DQ, SMELT__OF(TENSOR(DWEIGHTS)))};

static const struct smelt__metric key_metrics[SMELT__GRAD_METRICS] = {
    SMELT__GRAD_METRIC_ROWS("dk", DK),
};

static const struct smelt__rule query_rules[SMELT__GRAD_RULES] = {
    SMELT__GRAD_RULE_ROWS("dq", DQ, "a head to which no key contributes is not 0")};

static const struct smelt__rule key_rules[SMELT__GRAD_RULES] = {SMELT__GRAD_RULE_ROWS(
    "dk", DK, "a key to which no query contributes is not 0 or its previous value")};

/* fp32 sums of fp32 products. */
static const double DW_TOLERANCE = 1e-5;

static void compare_query(const struct smelt__placed *placed, const void *prepared, int64_t query,
                          struct smelt__finding *finding) {
    const struct smelt__indexer_bwd_spec *spec = placed->problem->spec;
    double *const memory = malloc(2 * (size_t)spec->dim * sizeof *memory);
    smelt_indexer_bwd_args args;
    (void)prepared;
    smelt__problem_arguments(placed->problem, &args);
    finding->failed = !memory;
    for (int head = 0; head < spec->heads && !finding->failed && !finding->broken; head++) {
        const struct smelt__indexer_head one = {.dq = TENSOR(DQ),
                                                .dweights = TENSOR(DWEIGHTS),
                                                .query = query,
                                                .head = head,
                                                .within = head};
        smelt__indexer_head_compare(placed, &one, spec, &args, memory, finding);
    }
    free(memory);
}

static void judge_queries(const struct smelt__problem *problem, int64_t compared,
                          struct smelt__metric_result *results) {
    const struct smelt__indexer_bwd_spec *spec = problem->spec;
    (void)compared;
    smelt__indexer_query_judge(spec->weights_dtype, DW_TOLERANCE, results);
}

static void compare_key(const struct smelt__placed *placed, const void *prepared, int64_t key,
                        struct smelt__finding *finding) {
    const struct smelt__indexer_bwd_spec *spec = placed->problem->spec;
    const struct smelt__key_rows rows = dk_rows(placed->problem);
    double *const memory = malloc(2 * (size_t)spec->dim * sizeof *memory);
    struct smelt__indexer_bwd_row row = {.grads = memory};
    smelt_indexer_bwd_args args;
    (void)prepared;
    smelt__problem_arguments(placed->problem, &args);
    finding->failed = !memory || smelt__indexer_bwd_key(spec, &args, key, &row) != 0;
    if (!finding->failed)
        smelt__indexer_key_compare(placed, &rows, key, &row, 0, memory + spec->dim, finding);
    free(memory);
}

static const struct smelt__comparison comparisons[] = {
    {
        SMELT__UNITS("query", "head", TENSOR(T)),
        SMELT__METRICS(query_metrics),
        SMELT__RULES(query_rules),
        .compare = compare_query,
        .judge = judge_queries,
    },
    {
        SMELT__UNITS("key", "part", TENSOR(S)),
        SMELT__METRICS(key_metrics),
        SMELT__RULES(key_rules),
        .compare = compare_key,
        .judge = smelt__grad_rows_bars,
    },
};

/* ---- the row --------------------------------------------------------------------------------- */

SMELT__KEY_TABLE(indexer_bwd, SMELT__INDEXER_BWD_KEYS)

#define PASS(number)                                                                               \
    {                                                                                              \
        SMELT__PASS(BACKWARD, "backward", &smelt__indexer_bwd_table[number]),                      \
            .table = (number), .given = given, .leaves_free = 1, .reproducible = reproducible,     \
            SMELT__PARTLY(SMELT__OF(TENSOR(K)) | SMELT__OF(TENSOR(INDICES)) |                      \
                          SMELT__OF(TENSOR(GRAD)))                                                 \
    }
static const struct smelt__harness_pass passes[] = {PASS(0), PASS(1), PASS(2), PASS(3)};

/* Shapes that cuDNN supports, and further ones. */
#define AT(heads, T, lists_)                                                                       \
    {                                                                                              \
        .spec = "indexer_bwd:heads=" #heads ",dim=128,topk=2048", .tokens = T, .rows = T,          \
        .lists = SMELT__LISTS_##lists_                                                             \
    }
#define DETERMINISTIC(heads, T)                                                                    \
    {                                                                                              \
        .spec = "indexer_bwd:heads=" #heads ",dim=128,topk=2048,deterministic=1", .tokens = T,     \
        .rows = T                                                                                  \
    }

static const struct smelt__harness_shape peers[] = {
    AT(64, 8192, RANDOM),    AT(64, 16384, RANDOM),   AT(64, 8192, DRIFT),
    AT(64, 16384, DRIFT),    AT(32, 8192, RANDOM),    AT(32, 8192, DRIFT),
    AT(16, 8192, RANDOM),    AT(16, 8192, DRIFT),     AT(8, 8192, RANDOM),
    AT(128, 8192, RANDOM),   DETERMINISTIC(64, 8192), DETERMINISTIC(64, 16384),
    DETERMINISTIC(32, 8192),
};

const struct smelt__harness_operator smelt__harness_indexer_bwd = {
    SMELT__HARNESS_ROW(indexer_bwd),
    SMELT__HARNESS_KEYS(indexer_bwd),
    .own_options = &smelt__limits_option,
    .own_option_count = 1,
    .has_lists = 1,
    /* Several key blocks and groups of queries, the last ones partial; each pattern of adversarial lists. */
    .small = {.tokens = 5, .patterns = 10, .width = 150},
    .most = {.rows = 700, .width = 330},
    .trial = {.tokens = 9, .width = 700},
    SMELT__KINDS(kinds),
    .bench = {.tokens = 8192, .rows = 8192},
};
