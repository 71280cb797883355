/* Results of sparse_attn's forward pass, beside the reference's. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/sparse_attn.h"
#include "reference/sparse_attn.h"

#define TENSOR(name) SMELT__SPARSE_ATTN_##name

/* docs/operators.md's meaning rounded to bf16 is 2e-3 away; probabilities rounded to bf16 add to
 * it. A few rows may all be of one slot: there the probability, which an integer maximum leaves
 * between 1/2 and 1, rounds by up to half a unit, as each element of out does, and the two
 * add: 5.7e-3. */
static const double OUT_TOLERANCE = 4e-3, OUT_TOLERANCE_FEW = 5.8e-3, ROW_TOLERANCE = 1.5e-2;
enum { FEW_ROWS = 64 }; /* queries times heads */
static const double LSE_TOLERANCE = 2e-3, LSE_TOLERANCE_PER_SCORE = 1e-6;
/* Rows smaller than this (a sink took nearly everything) are compared as if they were this large:
 * below it exponentials leave fp32's normal range. */
static const double SMALLEST_ROW_NORM = 1e-30;

enum { OUT_OVERALL, OUT_ROW, LSE, MAX_LOGITS, OUT_ABSOLUTE, LARGEST_SCORE, METRICS };

static const struct smelt__metric metrics[METRICS] = {
    [OUT_OVERALL] = {"relative_error", "out", "out, relative", "relative error of out",
                     SMELT__OVERALL},
    [OUT_ROW] = {"relative_error", "out_row", "worst row", "relative error of out", SMELT__LARGEST},
    [LSE] = {"max_abs_error", "lse", "lse", "error of lse", SMELT__LARGEST},
    [MAX_LOGITS] = {"max_abs_error", "max_logits", NULL, "error of max_logits", SMELT__LARGEST},
    [OUT_ABSOLUTE] = {"max_abs_error", "out", NULL, "error of out", SMELT__LARGEST},
    [LARGEST_SCORE] = {"", "largest_score", NULL, "score", SMELT__LARGEST},
};

static int64_t count_queries(const struct smelt__problem *problem) {
    return problem->options.batches * problem->options.tokens;
}

static int is_computed(const struct smelt__problem *problem, int64_t query) {
    return !problem->listed || problem->listed[query];
}

/* The difference of two numbers of which one may be -inf: 0 when both are, else infinite. */
static double difference(double got, double expected) {
    if (isinf(expected))
        return got == expected ? 0 : INFINITY;
    return isfinite(got) ? fabs(got - expected) : INFINITY;
}

static void compare_row(const struct smelt__placed *placed, int64_t query, int head,
                        const double *expected, int empty, struct smelt__finding *finding) {
    const smelt_sparse_attn_spec *spec = placed->problem->spec;
    const uint16_t *out = smelt__placed_out(placed, query, head);
    double different = 0, reference = 0;
    for (int d = 0; d < spec->dv; d++) {
        const double got = (double)smelt__bf16_to_float(out[d]), delta = got - expected[d];
        if (!isfinite(got) || (empty && got != 0)) {
            finding->wrong = empty ? "out of a query without a valid slot is not 0"
                                   : "out is NaN, infinite or not written";
            finding->wrong_place = head;
            return;
        }
        different += delta * delta;
        reference += expected[d] * expected[d];
        smelt__finding_enlarge(finding, OUT_ABSOLUTE, fabs(delta), head);
    }
    smelt__finding_enlarge(finding, OUT_ROW,
                           sqrt(different) / fmax(sqrt(reference), SMALLEST_ROW_NORM), head);
    finding->metrics[OUT_OVERALL].value += different;
    finding->metrics[OUT_OVERALL].weight += fmax(reference, SMALLEST_ROW_NORM * SMALLEST_ROW_NORM);
}

static void compare_results(const struct smelt__placed *placed, int64_t query,
                            const struct smelt__sparse_attn_results *expected,
                            struct smelt__finding *finding) {
    const smelt_sparse_attn_spec *spec = placed->problem->spec;
    smelt__finding_enlarge(finding, LARGEST_SCORE, expected->max_abs[0], 0);
    for (int head = 0; head < spec->heads; head++) {
        const double lse = expected->lse[head];
        compare_row(placed, query, head, expected->out + (int64_t)head * spec->dv, isinf(lse),
                    finding);
        smelt__finding_enlarge(
            finding, LSE, difference((double)smelt__placed_lse(placed, query, head), lse), head);
        if (placed->buffers[TENSOR(MAX_LOGITS)].host)
            smelt__finding_enlarge(finding, MAX_LOGITS,
                                   difference((double)smelt__placed_max_logit(placed, query, head),
                                              expected->max_logits[head]),
                                   head);
    }
}

static void compare_query(const struct smelt__placed *placed, const void *prepared, int64_t query,
                          struct smelt__finding *finding) {
    const struct smelt__problem *problem = placed->problem;
    const smelt_sparse_attn_spec *spec = problem->spec;
    const size_t heads = (size_t)spec->heads, dv = (size_t)spec->dv;
    double max_abs = 0, *memory = malloc(heads * (dv + 2) * sizeof *memory);
    (void)prepared;
    if (memory) {
        struct smelt__sparse_attn_results expected = {memory, memory + heads * dv,
                                                      memory + heads * (dv + 1), &max_abs};
        if (smelt__sparse_attn_reference(spec, problem->args, &query, 1, &expected) == 0)
            compare_results(placed, query, &expected, finding);
        else
            finding->wrong = "out of memory while computing the reference";
    } else {
        finding->wrong = "out of memory while computing the reference";
    }
    free(memory);
}

static void judge(const struct smelt__problem *problem, int64_t compared,
                  struct smelt__metric_result *results) {
    const smelt_sparse_attn_spec *spec = problem->spec;
    results[OUT_OVERALL].bar =
        compared * spec->heads < FEW_ROWS ? OUT_TOLERANCE_FEW : OUT_TOLERANCE;
    results[OUT_ROW].bar = ROW_TOLERANCE;
    results[LSE].bar = results[MAX_LOGITS].bar =
        LSE_TOLERANCE + LSE_TOLERANCE_PER_SCORE * results[LARGEST_SCORE].value;
}

const struct smelt__comparison smelt__sparse_attn_by_query = {
    .unit = "query",
    .place = "head",
    .metrics = metrics,
    .metric_count = METRICS,
    .count = count_queries,
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
