/* Compares the results of attention over lists with the reference: out, lse and dq by query, dk and dv by
 * key, dsink by head, the target by list. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "harness/attention.h"
#include "harness/parallel.h"
#include "harness/random.h"
#include "reference/bf16.h"

enum { STREAM_KEYS = 202 };

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
/* The rounding error of dp - delta in fp32, relative to the terms of these two sums. */
static const double LOST_IN_DIFFERENCE = 2e-6;
/* Numbers, and rows with a smaller norm (a sink has nearly all of the weight), are compared as if
 * they were this large, below which exponentials leave fp32's normal range. */
static const double SMALLEST = 1e-30;

/* ---- forward --------------------------------------------------------------------------------- */

/* Below it the probability of a query's only slot is 1 (docs/operators.md, "Accuracy"). */
static const double LARGEST_EXACT_SCORE = 45000;

/* The expected results of one head of a query. */
struct expected_out {
    const double *out, *terms;
    const uint16_t *exact; /* NULL: rounding errors are permitted */
    int dv, empty;
};

/* Whether the rules hold for element d of a head's row. */
static int obeys(struct smelt__finding *finding, double got, const struct expected_out *expected,
                 int d, int head) {
    if (expected->empty && !smelt__finding_rule(finding, SMELT__OUT_EMPTY, got == 0, head))
        return 0;
    if (!smelt__finding_rule(finding, SMELT__OUT_FINITE, isfinite(got), head))
        return 0;
    return !expected->exact ||
           smelt__finding_rule(finding, SMELT__OUT_SINGLE,
                               got == (double)smelt__bf16_to_float(expected->exact[d]), head);
}

static void compare_out(const uint16_t *out, const struct expected_out *expected, int head,
                        struct smelt__finding *finding) {
    double different = 0, reference = 0;
    for (int d = 0; d < expected->dv; d++) {
        const double got = (double)smelt__bf16_to_float(out[d]), delta = got - expected->out[d];
        const double terms = expected->terms[d] + fabs(expected->out[d]);
        if (!obeys(finding, got, expected, d, head))
            return;
        different += delta * delta;
        reference += expected->out[d] * expected->out[d];
        smelt__finding_enlarge(finding, SMELT__OUT_ABSOLUTE, fabs(delta), head);
        smelt__finding_enlarge(finding, SMELT__OUT_ELEMENT, fabs(delta) / fmax(terms, SMALLEST),
                               head);
    }
    smelt__finding_enlarge(finding, SMELT__OUT_ROW,
                           sqrt(different) / fmax(sqrt(reference), SMALLEST), head);
    finding->metrics[SMELT__OUT_OVERALL].value += different;
    finding->metrics[SMELT__OUT_OVERALL].weight += fmax(reference, SMALLEST * SMALLEST);
}

/* The absolute difference of two numbers that may be -inf: 0 if both are, infinite if one is. */
static double difference(double got, double expected) {
    if (isinf(expected))
        return got == expected ? 0 : INFINITY;
    return isfinite(got) ? fabs(got - expected) : INFINITY;
}

static void compare_number(const struct smelt__placed *placed, int tensor, int metric, int64_t row,
                           int head, double expected, struct smelt__finding *finding) {
    const float *const got = smelt__compared_row(
        placed, finding, tensor, smelt__problem_row(placed->problem, tensor, row), 1, &expected);
    if (got)
        smelt__finding_enlarge(finding, metric, difference((double)*got, expected), head);
}

/* The value of a query's valid slot if it has exactly one, of an operator that promises it: its
 * probability is 1, unless there is a sink or scores are too large for fp32's exponents. */
static const uint16_t *only_value(const struct smelt__problem *problem,
                                  const struct smelt__attention *call, int64_t query,
                                  double score) {
    struct smelt__attention two = *call; /* limits the rows that are written to two */
    int64_t rows[2] = {0, 0};
    two.spec.topk = (int)(call->spec.topk < 2 ? call->spec.topk : 2);
    if (!call->shared || call->spec.sink || score >= LARGEST_EXACT_SCORE ||
        smelt__attention_rows(&two, query, 0, rows) != 1)
        return NULL;
    const int kv = smelt__attention_tensors(problem).k;
    return (const uint16_t *)smelt__problem_data(problem, kv) +
           smelt__problem_at(problem, kv, query / call->tokens, rows[0], 0);
}

static void compare_heads(const struct smelt__placed *placed, const struct smelt__attention *call,
                          int64_t query, const struct smelt__attention_results *expected,
                          struct smelt__finding *finding) {
    const struct smelt__problem *const problem = placed->problem;
    const struct smelt__attention_tensors tensors = smelt__attention_tensors(problem);
    const int heads = call->spec.heads, dv = call->spec.dv;
    struct expected_out row = {.exact = only_value(problem, call, query, *expected->max_abs),
                               .dv = dv};
    smelt__finding_enlarge(finding, SMELT__OUT_SCORE, *expected->max_abs, 0);
    for (int head = 0; head < heads && !finding->broken; head++) {
        const int64_t number = query * heads + head;
        row.out = expected->out + (int64_t)head * dv;
        row.terms = expected->out_terms + (int64_t)head * dv;
        row.empty = isinf(expected->lse[head]);
        compare_out(smelt__compared_row(placed, finding, tensors.out,
                                        smelt__problem_row(problem, tensors.out, number), dv,
                                        row.out),
                    &row, head, finding);
        compare_number(placed, tensors.lse, SMELT__OUT_LSE, number, head, expected->lse[head],
                       finding);
        if (tensors.max_logits >= 0)
            compare_number(placed, tensors.max_logits, SMELT__OUT_MAX_LOGITS, number, head,
                           expected->max_logits[head], finding);
    }
}

void smelt__out_compare(const struct smelt__placed *placed, const void *prepared, int64_t query,
                        struct smelt__finding *finding) {
    const struct smelt__attention call = smelt__problem_attention(placed->problem);
    const size_t heads = (size_t)call.spec.heads, dv = (size_t)call.spec.dv;
    double max_abs = 0, *const memory = malloc(heads * (2 * dv + 2) * sizeof *memory);
    (void)prepared;
    finding->failed = !memory;
    if (memory) {
        const struct smelt__attention_results expected = {memory, memory + heads * dv,
                                                          memory + heads * (dv + 1), &max_abs,
                                                          memory + heads * (dv + 2)};
        finding->failed = smelt__attention_forward(&call, &query, 1, &expected) != 0;
        if (!finding->failed)
            compare_heads(placed, &call, query, &expected, finding);
    }
    free(memory);
}

void smelt__out_judge(const struct smelt__problem *problem, int64_t compared,
                      struct smelt__metric_result *results) {
    const struct smelt__attention_spec *const spec = problem->spec;
    const double by_score = TOLERANCE_PER_SCORE * results[SMELT__OUT_SCORE].value;
    const double by_scale = (double)problem->options.scale * sqrt(spec->dqk);
    /* With one row the overall error is that row's; over many rows outliers average out. */
    const double rows = (double)((compared > 0 ? compared : 1) * spec->heads);
    results[SMELT__OUT_OVERALL].bar =
        OUT_TOLERANCE + (ROW_TOLERANCE - OUT_TOLERANCE) / rows + by_score;
    results[SMELT__OUT_ROW].bar = ROW_TOLERANCE + by_score;
    results[SMELT__OUT_ELEMENT].bar = ELEMENT_TOLERANCE + by_score;
    results[SMELT__OUT_LSE].bar = LSE_TOLERANCE * fmax(1, by_scale) + by_score;
    if (smelt__attention_tensors(problem).max_logits >= 0)
        results[SMELT__OUT_MAX_LOGITS].bar = results[SMELT__OUT_LSE].bar;
}

/* ---- backward -------------------------------------------------------------------------------- */

static struct smelt__expected_row expect_row(const double *grads, int columns, double spread,
                                             double cancelled) {
    return (struct smelt__expected_row){.grads = grads,
                                        .columns = columns,
                                        .spread = spread,
                                        .lost = LOST_IN_DIFFERENCE * cancelled,
                                        .none = !(cancelled > 0)};
}

void smelt__grad_score_judge(const struct smelt__problem *problem, int64_t compared,
                             struct smelt__metric_result *results) {
    (void)problem, (void)compared;
    smelt__grad_rows_judge(TOLERANCE_PER_SCORE * results[SMELT__GRAD_SCORE].value, results);
}

void *smelt__listed_queries(const struct smelt__placed *placed, const int64_t *units,
                            int64_t count) {
    const struct smelt__problem *const problem = placed->problem;
    const int64_t all = problem->options.batches * problem->options.tokens;
    struct smelt__listed_queries *const queries =
        malloc(sizeof *queries + ((size_t)problem->computed + 1) * sizeof queries->numbers[0]);
    (void)units, (void)count;
    if (!queries)
        return NULL;
    queries->count = 0;
    for (int64_t query = 0; query < all; query++)
        for (int times = problem->listed ? problem->listed[query] : 1; times > 0; times--)
            queries->numbers[queries->count++] = query;
    return queries;
}

/* ---- dq, by query ---------------------------------------------------------------------------- */

void smelt__dq_compare(const struct smelt__placed *placed, const void *prepared, int64_t query,
                       struct smelt__finding *finding) {
    const struct smelt__problem *const problem = placed->problem;
    const struct smelt__attention call = smelt__problem_attention(problem);
    const int tensor = smelt__attention_tensors(problem).dq, columns = call.spec.dqk;
    const size_t heads = (size_t)call.spec.heads, dqk = (size_t)columns;
    double max_abs = 0, *const memory = malloc((heads * (dqk + 2) + dqk) * sizeof *memory);
    (void)prepared;
    finding->failed = !memory;
    if (!memory)
        return;
    const struct smelt__row_grads expected = {memory, memory + heads * dqk,
                                              memory + heads * (dqk + 1), &max_abs};
    double *const got = memory + heads * (dqk + 2);
    finding->failed = smelt__attention_dq(&call, &query, 1, &expected) != 0;
    for (int head = 0; head < call.spec.heads && !finding->failed && !finding->broken; head++) {
        const struct smelt__expected_row row =
            expect_row(expected.grads + (size_t)head * dqk, columns, expected.spread[head],
                       expected.cancelled[head]);
        const uint16_t *const dq =
            smelt__compared_row(placed, finding, tensor,
                                smelt__problem_row(problem, tensor, query * call.spec.heads + head),
                                columns, row.grads);
        for (int d = 0; d < columns; d++)
            got[d] = (double)smelt__bf16_to_float(dq[d]);
        smelt__grad_row_compare(got, &row, head, finding);
    }
    smelt__finding_enlarge(finding, SMELT__GRAD_SCORE, max_abs, 0);
    free(memory);
}

/* ---- dk and dv, by key ----------------------------------------------------------------------- */

static struct smelt__key_rows rows_of(const struct smelt__problem *problem, int of_values) {
    const struct smelt__attention_tensors tensors = smelt__attention_tensors(problem);
    return of_values ? tensors.dv : tensors.dk;
}

static int is_untouched(const struct smelt__placed *placed, const struct smelt__key_rows *rows,
                        int64_t key) {
    const struct smelt__problem *problem = placed->problem;
    const void *row = smelt__key_row(placed, rows, key);
    const float *before = smelt__key_row_before(problem, rows, key), *single = row;
    const uint16_t *half = row;
    int nonzero = 0;
    if (before)
        return memcmp(row, before, (size_t)rows->columns * sizeof *before) == 0;
    for (int d = 0; d < rows->columns; d++)
        nonzero |= problem->options.dkv == SMELT__DKV_BF16 ? (half[d] & 0x7fff) != 0
                                                           : !(single[d] == 0.0F);
    return !nonzero;
}

struct survey {
    const struct smelt__placed *placed;
    struct smelt__key_rows rows;
    struct smelt__attention call;
    _Atomic uint32_t *selections; /* [keys] slots that name them */
    uint8_t *chosen;              /* [keys] */
    _Atomic int64_t wrong;        /* a key that no query selects but that has a gradient; or -1 */
    _Atomic int failed;
};

static void count_selections(void *user, int64_t begin, int64_t end) {
    struct survey *survey = user;
    const struct smelt__attention *const call = &survey->call;
    const int64_t kv_heads = call->spec.kv_heads;
    int64_t *rows = malloc((size_t)(call->width * call->spec.granularity) * sizeof *rows);
    if (!rows)
        atomic_store(&survey->failed, 1);
    for (int64_t query = begin; query < end && rows; query++)
        for (int64_t list = 0; list < call->lists; list++) {
            const int64_t valid = smelt__query_is_computed(survey->placed->problem, query)
                                      ? smelt__attention_rows(call, query, list, rows)
                                      : 0;
            for (int64_t i = 0; i < valid; i++)
                for (int64_t head = list; head < kv_heads; head += call->lists)
                    atomic_fetch_add_explicit(
                        &survey
                             ->selections[(query / call->tokens * call->rows + rows[i]) * kv_heads +
                                          head],
                        1, memory_order_relaxed);
        }
    free(rows);
}

static void look_at_unselected(void *user, int64_t begin, int64_t end) {
    struct survey *survey = user;
    for (int64_t key = begin; key < end; key++)
        if (survey->selections[key] == 0 && !is_untouched(survey->placed, &survey->rows, key))
            atomic_store(&survey->wrong, key);
}

static void take(struct survey *survey, int64_t key, int64_t most, int64_t *units, int64_t *count) {
    if (key < 0 || survey->chosen[key] || *count == most)
        return;
    survey->chosen[key] = 1;
    units[(*count)++] = key;
}

/* The next selected (or unselected) key that was not taken; -1: none. */
static int64_t next_key(const struct survey *survey, int64_t total, int64_t from, int selected) {
    for (int64_t i = 0; i < total; i++) {
        const int64_t key = (from + i) % total;
        if ((survey->selections[key] > 0) == selected && !survey->chosen[key])
            return key;
    }
    return -1;
}

static int64_t most_selected(const struct survey *survey, int64_t total) {
    int64_t most = 0;
    for (int64_t key = 1; key < total; key++)
        if (survey->selections[key] > survey->selections[most])
            most = key;
    return most;
}

/* Takes a key that has a gradient although no query selects it; the last key, the most selected one
 * and the first; then selected and unselected keys alternately. */
static int64_t take_keys(struct survey *survey, int64_t total, int64_t most, int64_t *units) {
    struct smelt__random random =
        smelt__random_at(survey->placed->problem->options.seed, STREAM_KEYS, 0);
    int64_t count = 0;
    take(survey, atomic_load(&survey->wrong), most, units, &count);
    take(survey, total - 1, most, units, &count);
    take(survey, most_selected(survey, total), most, units, &count);
    take(survey, 0, most, units, &count);
    for (int round = 0; count < most && count < total; round++)
        take(survey, next_key(survey, total, smelt__random_below(&random, total), round % 4 != 3),
             most, units, &count);
    return count;
}

static int64_t choose_keys(const struct smelt__placed *placed, int of_values, int64_t most,
                           int64_t *units) {
    struct survey survey = {.placed = placed,
                            .rows = rows_of(placed->problem, of_values),
                            .call = smelt__problem_attention(placed->problem)};
    const int64_t total = survey.call.batches * survey.call.rows * survey.call.spec.kv_heads;
    int64_t count = -1;
    atomic_init(&survey.wrong, -1);
    atomic_init(&survey.failed, 0);
    survey.selections = calloc((size_t)total + 1, sizeof *survey.selections);
    survey.chosen = calloc((size_t)total + 1, 1);
    if (survey.selections && survey.chosen && total > 0) {
        smelt__parallel_for(survey.call.batches * survey.call.tokens, 64, count_selections,
                            &survey);
        smelt__parallel_for(total, 256, look_at_unselected, &survey);
        if (!atomic_load(&survey.failed))
            count = take_keys(&survey, total, most, units);
    }
    free((void *)survey.selections);
    free(survey.chosen);
    return count;
}

int64_t smelt__dk_choose(const struct smelt__placed *placed, int64_t most, int64_t *units) {
    return choose_keys(placed, 0, most, units);
}

int64_t smelt__dv_choose(const struct smelt__placed *placed, int64_t most, int64_t *units) {
    return choose_keys(placed, 1, most, units);
}

static void compare_key(const struct smelt__placed *placed,
                        const struct smelt__listed_queries *queries, int64_t key, int of_values,
                        struct smelt__finding *finding) {
    const struct smelt__attention call = smelt__problem_attention(placed->problem);
    const struct smelt__key_rows rows = rows_of(placed->problem, of_values);
    const int dqk = call.spec.dqk, dv = call.spec.dv;
    double numbers[2][2],
        max_abs = 0, *const memory = malloc((size_t)(2 * dqk + dv) * sizeof *memory);
    finding->failed = !memory;
    if (!memory)
        return;
    double *const grads[] = {memory, memory + dqk}, *const got = memory + dqk + dv;
    const struct smelt__row_grads expected[] = {
        {grads[0], &numbers[0][0], &numbers[0][1], &max_abs},
        {grads[1], &numbers[1][0], &numbers[1][1], NULL}};
    finding->failed = smelt__attention_keys(&call, queries->numbers, queries->count, &key, 1,
                                            &expected[0], &expected[1]) != 0;
    if (!finding->failed) {
        const double *const own = numbers[of_values];
        struct smelt__expected_row row = expect_row(grads[of_values], rows.columns, own[0], own[1]);
        finding->failed = smelt__key_row_read(placed, &rows, key, &row, got, finding) != 0;
        if (!finding->failed)
            smelt__grad_row_compare(got, &row, 0, finding);
        smelt__finding_enlarge(finding, SMELT__GRAD_SCORE, max_abs, 0);
    }
    free(memory);
}

void smelt__dk_compare(const struct smelt__placed *placed, const void *prepared, int64_t key,
                       struct smelt__finding *finding) {
    compare_key(placed, prepared, key, 0, finding);
}

void smelt__dv_compare(const struct smelt__placed *placed, const void *prepared, int64_t key,
                       struct smelt__finding *finding) {
    compare_key(placed, prepared, key, 1, finding);
}

/* ---- dsink, by head -------------------------------------------------------------------------- */

int64_t smelt__dsink_count(const struct smelt__problem *problem) {
    const struct smelt__attention_spec *const spec = problem->spec;
    const int dsink = smelt__attention_tensors(problem).dsink;
    return problem->buffers[dsink].elements > 0 ? spec->heads : 0;
}

void smelt__dsink_compare(const struct smelt__placed *placed, const void *prepared, int64_t head,
                          struct smelt__finding *finding) {
    const struct smelt__listed_queries *const queries = prepared;
    const struct smelt__attention call = smelt__problem_attention(placed->problem);
    const int dsink = smelt__attention_tensors(placed->problem).dsink;
    double expected, terms;
    finding->failed = smelt__attention_dsink(&call, queries->numbers, queries->count, (int)head,
                                             &expected, &terms) != 0;
    if (finding->failed)
        return;
    const double got =
        (double)*(const float *)smelt__compared_row(placed, finding, dsink, head, 1, &expected);
    if (smelt__finding_rule(finding, SMELT__DSINK_FINITE, isfinite(got), 0) &&
        (terms > 0 || smelt__finding_rule(finding, SMELT__DSINK_UNUSED, got == 0, 0)))
        smelt__finding_enlarge(finding, 0, fabs(got - expected) / fmax(terms, SMALLEST), 0);
}

/* ---- the target, by list --------------------------------------------------------------------- */

int64_t smelt__target_count(const struct smelt__problem *problem) {
    return problem->options.batches * problem->options.tokens *
           smelt__problem_attention(problem).lists;
}

int smelt__target_is_computed(const struct smelt__problem *problem, int64_t unit) {
    return smelt__query_is_computed(problem, unit / smelt__problem_attention(problem).lists);
}

/* The largest error of a slot, relative to its row's sum: the tensor cores' truncation of its score (at
 * most 2^-23 of the sum for each of its dqk / 16 = 36 steps), the rounding of lse and of the exponent
 * to fp32, and of the sum over heads. */
void smelt__target_judge(const struct smelt__problem *problem, int64_t compared,
                         struct smelt__metric_result *results) {
    (void)problem, (void)compared;
    results[SMELT__TARGET_RELATIVE].bar = 3e-5 + 4.5e-6 * results[SMELT__TARGET_SCORE].value;
}

static void compare_slots(const float *got, const double *expected, int64_t width,
                          struct smelt__finding *finding) {
    double sum = 0;
    for (int64_t i = 0; i < width; i++)
        sum += expected[i];
    for (int64_t i = 0; i < width; i++) {
        /* Only a masked slot's is exactly 0: others are exp() of doubles. */
        if (!smelt__finding_rule(finding, SMELT__TARGET_NUMBER, isfinite(got[i]) && got[i] >= 0,
                                 i) ||
            (expected[i] == 0 &&
             !smelt__finding_rule(finding, SMELT__TARGET_MASKED, got[i] == 0, i)))
            return;
        smelt__finding_enlarge(finding, SMELT__TARGET_RELATIVE,
                               fabs((double)got[i] - expected[i]) / fmax(sum, SMALLEST), i);
    }
}

void smelt__target_compare(const struct smelt__placed *placed, const void *prepared, int64_t unit,
                           struct smelt__finding *finding) {
    const struct smelt__problem *const problem = placed->problem;
    const struct smelt__attention call = smelt__problem_attention(problem);
    const int64_t query = unit / call.lists, list = unit % call.lists;
    const int target = smelt__attention_tensors(problem).target;
    double *const expected = malloc((size_t)call.width * sizeof *expected), largest = 0;
    (void)prepared;
    finding->failed =
        !expected || smelt__attention_target(&call, query, list, expected, &largest) != 0;
    if (!finding->failed) {
        const int64_t first =
            smelt__problem_at(problem, target, query / call.tokens, query % call.tokens, list);
        smelt__finding_enlarge(finding, SMELT__TARGET_SCORE, largest, 0);
        compare_slots(smelt__compared_row(placed, finding, target, first, call.width, expected),
                      expected, call.width, finding);
    }
    free(expected);
}

/* ---- reading the copy ------------------------------------------------------------------------ */

static const void *row_at(const struct smelt__placed *placed, int tensor, int64_t query, int head) {
    const int64_t tokens = placed->problem->options.tokens;
    return smelt__placed_row(placed, tensor, query / tokens, query % tokens, head);
}

const uint16_t *smelt__placed_out(const struct smelt__placed *placed, int64_t query, int head) {
    return row_at(placed, smelt__attention_tensors(placed->problem).out, query, head);
}

float smelt__placed_lse(const struct smelt__placed *placed, int64_t query, int head) {
    return *(const float *)row_at(placed, smelt__attention_tensors(placed->problem).lse, query,
                                  head);
}

float smelt__placed_max_logit(const struct smelt__placed *placed, int64_t query, int head) {
    return *(const float *)row_at(placed, smelt__attention_tensors(placed->problem).max_logits,
                                  query, head);
}
