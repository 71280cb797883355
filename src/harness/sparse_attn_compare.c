/* Compares sparse_attn's forward pass with the reference. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/sparse_attn.h"
#include "reference/operators.h"

#define TENSOR(name) SMELT__SPARSE_ATTN_##name

/* Rounding to bf16 has a relative error of at most 2^-8, and 1.7e-3 in the mean square. A row is
 * rounded twice, as probabilities and as out; a row with one slot and a sink may have both errors
 * in full (5.3e-3 was measured). An element's errors are at most 2^-8 of the sum of its terms'
 * sizes and 2^-8 of itself; the remainder of the bar is for other rounding. */
static const double OUT_TOLERANCE = 4e-3, ROW_TOLERANCE = 8e-3, ELEMENT_TOLERANCE = 1.1 / 256;
/* Measured: 4.1e-6 with scores below 10; it grows with the scale. Large scores have the tensor
 * cores' truncation error: at most 2^-23 of the sum for each of its dqk / 16 = 36 steps, 4.3e-6 in
 * total (2.3e-6 was measured). A score's error changes its probability by the same relative
 * amount. */
static const double LSE_TOLERANCE = 5e-5, TOLERANCE_PER_SCORE = 4.3e-6;
/* Below it the probability of a query's only slot is 1 (docs/operators.md, "Accuracy"). */
static const double LARGEST_EXACT_SCORE = 45000;
/* Rows with a smaller norm (a sink has nearly all of the weight) are compared as if they had this
 * one, below which exponentials leave fp32's normal range. */
static const double SMALLEST_ROW_NORM = 1e-30;

enum { OUT_OVERALL, OUT_ROW, OUT_ELEMENT, LSE, MAX_LOGITS, OUT_ABSOLUTE, LARGEST_SCORE, METRICS };

#define OUT SMELT__OF(TENSOR(OUT))

static const struct smelt__metric metrics[METRICS] = {
    [OUT_OVERALL] = {"relative_error", "out", "out, relative", "relative error of out",
                     SMELT__OVERALL, OUT},
    [OUT_ROW] = {"relative_error", "out_row", "worst row", "relative error of out", SMELT__LARGEST,
                 OUT},
    [OUT_ELEMENT] = {"relative_error", "out_element", "worst element",
                     "error of an element of out, relative to its terms,", SMELT__LARGEST, OUT},
    [LSE] = {"max_abs_error", "lse", "lse", "error of lse", SMELT__LARGEST, SMELT__OF(TENSOR(LSE))},
    [MAX_LOGITS] = {"max_abs_error", "max_logits", NULL, "error of max_logits", SMELT__LARGEST,
                    SMELT__OF(TENSOR(MAX_LOGITS))},
    [OUT_ABSOLUTE] = {"max_abs_error", "out", NULL, "error of out", SMELT__LARGEST, OUT},
    [LARGEST_SCORE] = {"", "largest_score", NULL, "score", SMELT__LARGEST, 0},
};

enum { EMPTY_QUERY, FINITE, SINGLE_SLOT, RULES };

static const struct smelt__rule rules[RULES] = {
    [EMPTY_QUERY] = {"empty_query", OUT, "out of a query without a valid slot is not 0"},
    [FINITE] = {"finite", OUT, "out is NaN, infinite or not written"},
    [SINGLE_SLOT] = {"single_slot", OUT,
                     "out of a query with one valid slot is not that row's value"},
};

static int is_computed(const struct smelt__problem *problem, int64_t query) {
    return !problem->listed || problem->listed[query];
}

/* The absolute difference of two numbers that may be -inf: 0 if both are, infinite if one is. */
static double difference(double got, double expected) {
    if (isinf(expected))
        return got == expected ? 0 : INFINITY;
    return isfinite(got) ? fabs(got - expected) : INFINITY;
}

/* The expected results of one head of a query. */
struct expected_row {
    const double *out, *terms;
    const uint16_t *exact; /* NULL: rounding errors are permitted */
    int empty;
};

/* Whether the rules hold for element d of a head's row. */
static int obeys(struct smelt__finding *finding, double got, const struct expected_row *expected,
                 int d, int head) {
    if (expected->empty && !smelt__finding_rule(finding, EMPTY_QUERY, got == 0, head))
        return 0;
    if (!smelt__finding_rule(finding, FINITE, isfinite(got), head))
        return 0;
    return !expected->exact ||
           smelt__finding_rule(finding, SINGLE_SLOT,
                               got == (double)smelt__bf16_to_float(expected->exact[d]), head);
}

/* The number of the first element of a head's row of a query. */
static int64_t element_of(const struct smelt__problem *problem, int tensor, int64_t query,
                          int head) {
    const int64_t tokens = problem->options.tokens;
    return smelt__problem_at(problem, tensor, query / tokens, query % tokens, head);
}

/* Compares one fp32 number of a head. */
static void compare_number(const struct smelt__placed *placed, int tensor, int metric,
                           int64_t query, int head, double expected,
                           struct smelt__finding *finding) {
    const float *const got = smelt__compared_row(
        placed, finding, tensor, element_of(placed->problem, tensor, query, head), 1, &expected);
    if (got)
        smelt__finding_enlarge(finding, metric, difference((double)*got, expected), head);
}

static void compare_row(const struct smelt__placed *placed, int64_t query, int head,
                        const struct expected_row *expected, struct smelt__finding *finding) {
    const struct smelt__sparse_attn_spec *spec = placed->problem->spec;
    const uint16_t *const out = smelt__compared_row(
        placed, finding, TENSOR(OUT), element_of(placed->problem, TENSOR(OUT), query, head),
        spec->dv, expected->out);
    double different = 0, reference = 0;
    for (int d = 0; d < spec->dv; d++) {
        const double got = (double)smelt__bf16_to_float(out[d]), delta = got - expected->out[d];
        const double terms = expected->terms[d] + fabs(expected->out[d]);
        if (!obeys(finding, got, expected, d, head))
            return;
        different += delta * delta;
        reference += expected->out[d] * expected->out[d];
        smelt__finding_enlarge(finding, OUT_ABSOLUTE, fabs(delta), head);
        smelt__finding_enlarge(finding, OUT_ELEMENT, fabs(delta) / fmax(terms, SMALLEST_ROW_NORM),
                               head);
    }
    smelt__finding_enlarge(finding, OUT_ROW,
                           sqrt(different) / fmax(sqrt(reference), SMALLEST_ROW_NORM), head);
    finding->metrics[OUT_OVERALL].value += different;
    finding->metrics[OUT_OVERALL].weight += fmax(reference, SMALLEST_ROW_NORM * SMALLEST_ROW_NORM);
}

/* The value of a query's valid slot if it has exactly one: its probability is 1, unless there is a
 * sink or scores are too large for fp32's exponents. */
static const uint16_t *only_value(const struct smelt__problem *problem, int64_t query,
                                  double score) {
    const struct smelt__sparse_attn_spec *spec = problem->spec;
    struct smelt__sparse_attn_spec two = *spec; /* limits the rows that are written to two */
    int64_t rows[2] = {0, 0};
    two.topk = spec->topk < 2 ? spec->topk : 2;
    if (spec->sink || score >= LARGEST_EXACT_SCORE ||
        smelt__sparse_attn_valid_rows(&two, problem->args, query, rows) != 1)
        return NULL;
    const uint16_t *const kv = smelt__problem_data(problem, TENSOR(KV));
    return kv + smelt__problem_at(problem, TENSOR(KV), query / problem->options.tokens, rows[0], 0);
}

static void compare_results(const struct smelt__placed *placed, int64_t query,
                            const struct smelt__sparse_attn_results *expected,
                            struct smelt__finding *finding) {
    const struct smelt__sparse_attn_spec *spec = placed->problem->spec;
    struct expected_row row = {.exact = only_value(placed->problem, query, expected->max_abs[0])};
    smelt__finding_enlarge(finding, LARGEST_SCORE, expected->max_abs[0], 0);
    for (int head = 0; head < spec->heads && !finding->broken; head++) {
        const double lse = expected->lse[head];
        row.out = expected->out + (int64_t)head * spec->dv;
        row.terms = expected->out_terms + (int64_t)head * spec->dv;
        row.empty = isinf(lse);
        compare_row(placed, query, head, &row, finding);
        compare_number(placed, TENSOR(LSE), LSE, query, head, lse, finding);
        compare_number(placed, TENSOR(MAX_LOGITS), MAX_LOGITS, query, head,
                       expected->max_logits[head], finding);
    }
}

static void compare_query(const struct smelt__placed *placed, const void *prepared, int64_t query,
                          struct smelt__finding *finding) {
    const struct smelt__problem *problem = placed->problem;
    const struct smelt__sparse_attn_spec *spec = problem->spec;
    const size_t heads = (size_t)spec->heads, dv = (size_t)spec->dv;
    double max_abs = 0, *memory = malloc(heads * (2 * dv + 2) * sizeof *memory);
    (void)prepared;
    finding->failed = 1;
    if (memory) {
        struct smelt__sparse_attn_results expected = {memory, memory + heads * dv,
                                                      memory + heads * (dv + 1), &max_abs,
                                                      memory + heads * (dv + 2)};
        if (smelt__sparse_attn_reference(spec, problem->args, &query, 1, &expected) == 0) {
            finding->failed = 0;
            compare_results(placed, query, &expected, finding);
        }
    }
    free(memory);
}

static void judge(const struct smelt__problem *problem, int64_t compared,
                  struct smelt__metric_result *results) {
    const struct smelt__sparse_attn_spec *spec = problem->spec;
    const double by_score = TOLERANCE_PER_SCORE * results[LARGEST_SCORE].value;
    const double by_scale = (double)problem->options.scale * sqrt(spec->dqk);
    /* With one row the overall error is that row's; over many rows outliers average out. */
    const double rows = (double)(compared > 0 ? compared : 1) * spec->heads;
    results[OUT_OVERALL].bar = OUT_TOLERANCE + (ROW_TOLERANCE - OUT_TOLERANCE) / rows + by_score;
    results[OUT_ROW].bar = ROW_TOLERANCE + by_score;
    results[OUT_ELEMENT].bar = ELEMENT_TOLERANCE + by_score;
    results[LSE].bar = results[MAX_LOGITS].bar = LSE_TOLERANCE * fmax(1, by_scale) + by_score;
}

const struct smelt__comparison smelt__sparse_attn_by_query = {
    SMELT__UNITS("query", "head", TENSOR(B), TENSOR(T)),
    SMELT__METRICS(metrics),
    SMELT__RULES(rules),
    .wanted = is_computed,
    .compare = compare_query,
    .judge = judge,
};

/* ---- reading the copy ------------------------------------------------------------------------ */

static const void *row_at(const struct smelt__placed *placed, int tensor, int64_t query, int head) {
    const int64_t tokens = placed->problem->options.tokens;
    return smelt__placed_row(placed, tensor, query / tokens, query % tokens, head);
}

const uint16_t *smelt__placed_out(const struct smelt__placed *placed, int64_t query, int head) {
    return row_at(placed, TENSOR(OUT), query, head);
}

float smelt__placed_lse(const struct smelt__placed *placed, int64_t query, int head) {
    return *(const float *)row_at(placed, TENSOR(LSE), query, head);
}

float smelt__placed_max_logit(const struct smelt__placed *placed, int64_t query, int head) {
    return *(const float *)row_at(placed, TENSOR(MAX_LOGITS), query, head);
}
