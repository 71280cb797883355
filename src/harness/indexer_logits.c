/* The harness's row of indexer_logits. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "harness/footprint.h"
#include "harness/indexer.h"
#include "harness/operator.h"
#include "harness/placed.h"
#include "harness/random.h"
#include "harness/windows.h"
#include "ops/indexer_logits_table.h"
#include "reference/operators.h"
#include "smelt/indexer_logits.h"

#define TENSOR(name) SMELT__INDEXER_LOGITS_##name

/* ---- problems -------------------------------------------------------------------------------- */

static const char *const options[] = {"width", "documents", "lists", NULL};

static int is_fp8(const struct smelt__indexer_logits_spec *spec) {
    return spec->dtype == SMELT__DTYPE_FP8;
}

enum { CANDIDATES }; /* own options by number */

#define OWN(number) offsetof(struct smelt__problem_options, own[number])
static const struct smelt__option own_options[] = {
    {"candidates", SMELT__OPTION_INTEGER, OWN(CANDIDATES), 0, INT32_MAX, NULL,
     "number of listed blocks of a query, with candidate_block", SMELT__OPTION_INPUTS},
};

static int64_t candidates_of(const struct smelt__indexer_logits_spec *spec,
                             const struct smelt__problem_options *given_) {
    const int64_t asked = given_->own[CANDIDATES];
    return spec->candidate_block && asked
               ? asked
               : smelt__candidates_default(spec->candidate_block, given_->rows);
}

static int given(const struct smelt__problem *problem, int tensor) {
    const struct smelt__indexer_logits_spec *spec = problem->spec;
    return tensor == TENSOR(K_SCALE)      ? is_fp8(spec)
           : tensor == TENSOR(CANDIDATES) ? spec->candidate_block > 0
                                          : spec->weights;
}

/* Without weights a scale, of either sign; it follows from the shape, since a captured graph keeps it
 * where data change. */
static void shape(struct smelt__problem *problem) {
    static const float scales[] = {0.375F, 0, -0.25F};
    const struct smelt__indexer_logits_spec *spec = problem->spec;
    smelt_indexer_logits_args *const args = problem->args;
    args->scale = spec->weights ? 0 : scales[problem->options.rows % 3];
    args->candidate_count = candidates_of(spec, &problem->options);
}

/* ---- candidates ------------------------------------------------------------------------------ */

/* The keys [*first, result) of a query's window that its logit number `n` is of; none unless above
 * *first. */
static int64_t listed_keys(const struct smelt__problem *problem,
                           const smelt_indexer_logits_args *args, int64_t query, int64_t n,
                           int64_t *first) {
    int32_t begin, end;
    int64_t count;
    *first = smelt__indexer_logits_keys(problem->spec, args, query, n, &count);
    const int64_t past = *first + count;
    smelt__windows_of(problem, TENSOR(WINDOW_BEGIN), TENSOR(WINDOW_END), query, &begin, &end);
    *first = *first < begin ? begin : *first;
    return past < end ? past : end;
}

/* Marks the keys that some query scores, and counts the logits that are scored. */
static void mark_listed(struct smelt__problem *problem, uint8_t *used) {
    smelt_indexer_logits_args args;
    smelt__problem_arguments(problem, &args);
    problem->valid_slots = 0;
    for (int64_t t = 0; t < problem->extents[TENSOR(T)]; t++)
        for (int64_t n = 0; n < problem->extents[TENSOR(N)]; n++) {
            int64_t key;
            const int64_t past = listed_keys(problem, &args, t, n, &key);
            for (; key < past; key++) {
                used[key] = 1;
                problem->valid_slots++;
            }
        }
}

static int fill_listed(struct smelt__problem *problem, const struct smelt__indexer_inputs *inputs) {
    uint8_t *const used = calloc((size_t)problem->options.rows, 1);
    if (!used)
        return -1;
    smelt__windows_fill(problem, TENSOR(WINDOW_BEGIN), TENSOR(WINDOW_END));
    smelt__candidates_fill(
        problem, TENSOR(CANDIDATES),
        ((const struct smelt__indexer_logits_spec *)problem->spec)->candidate_block, 1);
    mark_listed(problem, used);
    const int failed = smelt__indexer_fill_rows(problem, inputs, used);
    free(used);
    return failed;
}

static int fill(struct smelt__problem *problem) {
    const struct smelt__indexer_logits_spec *spec = problem->spec;
    const struct smelt__indexer_inputs inputs = {
        .heads = spec->heads,
        .dim = spec->dim,
        .dtype = spec->dtype,
        .q = TENSOR(Q),
        .k = TENSOR(K),
        .weights = spec->weights ? TENSOR(WEIGHTS) : -1,
        .k_scale = TENSOR(K_SCALE),
        .window_begin = TENSOR(WINDOW_BEGIN),
        .window_end = TENSOR(WINDOW_END),
    };
    return spec->candidate_block ? fill_listed(problem, &inputs)
                                 : smelt__indexer_fill(problem, &inputs);
}

/* Of listed keys those that are scored. */
static void footprint(const struct smelt__problem *problem, struct smelt__footprints *footprints) {
    const struct smelt__indexer_logits_spec *spec = problem->spec;
    smelt_indexer_logits_args args;
    smelt__problem_arguments(problem, &args);
    if (!spec->candidate_block) {
        smelt__touch_whole(footprints, TENSOR(K));
        smelt__touch_whole(footprints, TENSOR(K_SCALE));
        return;
    }
    for (int64_t t = 0; t < problem->extents[TENSOR(T)]; t++)
        for (int64_t n = 0; n < problem->extents[TENSOR(N)] && footprints->inputs; n++) {
            int64_t key;
            const int64_t past = listed_keys(problem, &args, t, n, &key);
            for (; key < past; key++) {
                smelt__touch_row(footprints, TENSOR(K), key, 0, 0);
                smelt__touch(footprints, TENSOR(K_SCALE), key, 1);
            }
        }
}

/* ---- figures --------------------------------------------------------------------------------- */

static double multiplications(const void *spec, const struct smelt__problem_options *given_) {
    const struct smelt__indexer_logits_spec *indexer = spec;
    const int64_t keys = indexer->candidate_block
                             ? candidates_of(indexer, given_) * indexer->candidate_block
                             : given_->rows;
    return (double)(given_->batches * given_->tokens) * (double)keys * indexer->heads *
           indexer->dim;
}

/* Measured on an H200: large matrix products under sustained load, bf16 and e4m3; and writing to
 * memory. */
static const double TFLOPS_CEILING[] = {690, 1494}, TBS_CEILING = 4.1;

/* Arithmetic: the keys in windows. Bytes: each tensor once. */
static int rates(const struct smelt__problem *problem,
                 struct smelt__rate found[SMELT__MOST_RATES]) {
    const struct smelt__indexer_logits_spec *spec = problem->spec;
    const double tera = 1e12, width = (double)spec->heads * spec->dim;
    const double tokens = (double)problem->extents[TENSOR(T)];
    const double rows = (double)problem->extents[TENSOR(S)];
    const double element = is_fp8(spec) ? 1 : 2;
    found[0] = SMELT__TFLOPS(2 * (double)problem->valid_slots * width / tera,
                             TFLOPS_CEILING[is_fp8(spec)]);
    const double logits = tokens * spec->groups * (double)problem->extents[TENSOR(N)];
    found[1] =
        SMELT__TBS("memory", 2, (logits * 4 + element * (tokens * width + rows * spec->dim)) / tera,
                   TBS_CEILING);
    return 2;
}

/* ---- comparison ------------------------------------------------------------------------------ */

static const double TOLERANCE[] = {SMELT__LOGITS_TOLERANCE, SMELT__E4M3_SUM_TOLERANCE};

enum { OUTSIDE_WINDOW = SMELT__LOGITS_RULES, RULES };

static const struct smelt__metric metrics[SMELT__LOGITS_METRICS] = {
    SMELT__LOGITS_METRIC_ROWS(SMELT__OF(TENSOR(LOGITS)))};

static const struct smelt__rule rules[RULES] = {
    SMELT__LOGITS_RULE_ROWS(SMELT__OF(TENSOR(LOGITS))),
    [OUTSIDE_WINDOW] = {"outside_window", SMELT__OF(TENSOR(LOGITS)),
                        "a logit outside the window is not -inf"},
};

/* One group's logits of a query; expected[N], then their terms. */
static void compare_group(const struct smelt__placed *placed, const smelt_indexer_logits_args *args,
                          int64_t query, int64_t group, const double *expected, const double *terms,
                          struct smelt__finding *finding) {
    const struct smelt__problem *problem = placed->problem;
    const struct smelt__indexer_logits_spec *spec = problem->spec;
    const int64_t columns = problem->extents[TENSOR(N)];
    const float *const got =
        smelt__compared_at(placed, finding, TENSOR(LOGITS), query, group, columns, expected);
    int32_t begin, end;
    smelt__windows_of(problem, TENSOR(WINDOW_BEGIN), TENSOR(WINDOW_END), query, &begin, &end);
    for (int64_t n = 0; n < columns && !finding->broken; n++) {
        int64_t count;
        const int64_t first = smelt__indexer_logits_keys(spec, args, query, n, &count);
        if (count > 0 && begin < end && first + count > begin && first < end)
            smelt__logits_compare(got[n], expected[n], terms[n], group * columns + n, finding);
        else
            smelt__finding_rule(finding, OUTSIDE_WINDOW, isinf(got[n]) && got[n] < 0,
                                group * columns + n);
    }
}

static void compare_query(const struct smelt__placed *placed, const void *prepared, int64_t query,
                          struct smelt__finding *finding) {
    const struct smelt__problem *problem = placed->problem;
    const struct smelt__indexer_logits_spec *spec = problem->spec;
    const int64_t columns = problem->extents[TENSOR(N)], count = spec->groups * columns;
    double *const expected = malloc((size_t)count * 2 * sizeof *expected);
    smelt_indexer_logits_args args;
    (void)prepared;
    smelt__problem_arguments(problem, &args);
    finding->failed = !expected || smelt__indexer_logits_reference(spec, &args, query, expected,
                                                                   expected + count);
    for (int64_t g = 0; g < spec->groups && !finding->failed && !finding->broken; g++)
        compare_group(placed, &args, query, g, expected + g * columns,
                      expected + count + g * columns, finding);
    free(expected);
}

static void judge(const struct smelt__problem *problem, int64_t compared,
                  struct smelt__metric_result *results) {
    (void)compared;
    results[SMELT__LOGITS_RELATIVE].bar = TOLERANCE[is_fp8(problem->spec)];
    results[SMELT__LOGITS_ABSOLUTE].bar = -1;
}

static const struct smelt__comparison comparisons[] = {
    {
        SMELT__UNITS("query", "key", TENSOR(T)),
        SMELT__METRICS(metrics),
        SMELT__RULES(rules),
        .compare = compare_query,
        .judge = judge,
    },
};

/* ---- the row --------------------------------------------------------------------------------- */

SMELT__KEY_TABLE(indexer_logits, SMELT__INDEXER_LOGITS_KEYS)

#define PASS(number)                                                                               \
    {                                                                                              \
        SMELT__PASS(FORWARD, "forward", &smelt__indexer_logits_table[number]),                     \
            .table = (number), .given = given, .shape = shape, .leaves_free = 1,                   \
            SMELT__PARTLY(SMELT__OF(TENSOR(K)) | SMELT__OF(TENSOR(K_SCALE)))                       \
    }
#define PASSES(n) PASS(n), PASS(n + 1), PASS(n + 2), PASS(n + 3), PASS(n + 4), PASS(n + 5)

static const struct smelt__harness_pass passes[] = {PASSES(0), PASSES(6), PASSES(12), PASSES(18)};

/* Shapes for comparison with DeepGEMM and cuDNN. */
#define PEERS(dtype, heads)                                                                        \
    {.spec = "indexer_logits:heads=" #heads ",dim=128,dtype=" #dtype,                              \
     .tokens = 16384,                                                                              \
     .rows = 16384,                                                                                \
     .lists = SMELT__LISTS_CAUSAL,                                                                 \
     .documents = 1},                                                                              \
    {                                                                                              \
        .spec = "indexer_logits:heads=" #heads ",dim=128,dtype=" #dtype, .tokens = 4096,           \
        .rows = 8192, .lists = SMELT__LISTS_FULL                                                   \
    }

static const struct smelt__harness_shape peers[] = {
    PEERS(fp8, 64),  PEERS(fp8, 32),  PEERS(fp8, 16),  PEERS(fp8, 8),
    PEERS(bf16, 64), PEERS(bf16, 32), PEERS(bf16, 16), PEERS(bf16, 8),
};

const struct smelt__harness_operator smelt__harness_indexer_logits = {
    SMELT__HARNESS_ROW(indexer_logits),
    SMELT__HARNESS_KEYS(indexer_logits),
    .own_options = own_options,
    .own_option_count = sizeof own_options / sizeof *own_options,
    SMELT__INDEXER_OPTIONS,
    .bench = {.tokens = 4096, .rows = 8192, .lists = SMELT__LISTS_FULL},
};
