/* See attention.h. */
#include "harness/attention.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "harness/normal.h"
#include "harness/parallel.h"
#include "harness/random.h"
#include "reference/bf16.h"

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

int smelt__query_is_computed(const struct smelt__problem *problem, int64_t query) {
    return !problem->listed || problem->listed[query];
}

/* ---- problems ------------------------------------------------------------------------------- */

enum { STREAM_Q = 1, STREAM_SINK = 4, STREAM_OUT = 12 };

/* Spiky heads: scores are multiplied by 1, 8 or 40, and all of a head's moved by 110 or -110
 * through the last column, where every key holds 8. In every second query they are not multiplied
 * but rise from the table's first row to its last by 1000, in every second head fall, by as much or
 * by 128, through the column before, where keys hold their place in the table: key blocks in order
 * each move the maximum, or leave it far above, or in long lists a little, and all of them together
 * by more than fp32's exponents reach. */
static const float SPIKE_KEY = 8.0F, SPIKE_SHIFT = 110.0F, SPIKE_RISE = 1000.0F,
                   SPIKE_SLOW_FALL = 128.0F;

/* No score of any problem is so many standard deviations above the mean (probability 10^-12). */
static const double RARE_DEVIATIONS = 7;

void smelt__spiky_query(const struct smelt__problem_options *options, int heads, int dqk,
                        uint64_t row, uint16_t *q) {
    static const float factors[] = {1.0F, 8.0F, 40.0F};
    const float scale = options->scale;
    const int rises = row / (uint64_t)heads % 2 == 1;
    struct smelt__random random = smelt__random_at(options->seed, STREAM_Q, ~row);
    float factor = rises ? 1.0F : factors[smelt__random_below(&random, 3)];
    float shift = SPIKE_SHIFT / (SPIKE_KEY * scale);
    for (int d = 0; d < dqk; d++)
        q[d] = smelt__bf16_from_float(factor * smelt__bf16_to_float(q[d]));
    q[dqk - 1] = smelt__bf16_from_float(smelt__random_next(&random) & 1 ? shift : -shift);
    float rise = row % 2 == 0 ? SPIKE_RISE : row % 4 == 1 ? -SPIKE_RISE : -SPIKE_SLOW_FALL;
    q[dqk - 2] = smelt__bf16_from_float(rises ? rise / scale : 0.0F);
}

void smelt__spiky_key(const struct smelt__problem_options *options, int dqk, int64_t number,
                      uint16_t *key) {
    key[dqk - 1] = smelt__bf16_from_float(SPIKE_KEY);
    key[dqk - 2] = smelt__bf16_from_float((float)number / (float)options->rows);
}

double smelt__sparse_attn_estimate_lse(const struct smelt__problem *problem, int dqk,
                                       const uint16_t *q, int64_t valid) {
    const double scale = (double)problem->options.scale;
    const int spikes = problem->options.spiky ? 2 : 0; /* columns of a key that are not random */
    double square = 0, middle = 0;
    for (int d = 0; d < dqk - spikes; d++)
        square += pow((double)smelt__bf16_to_float(q[d]), 2);
    if (spikes)
        middle = (double)(SPIKE_KEY * smelt__bf16_to_float(q[dqk - 1])) +
                 fmax(0, (double)smelt__bf16_to_float(q[dqk - 2]));
    const double deviation = scale * sqrt(square);
    return scale * middle +
           fmax(log((double)valid) + deviation * deviation / 2, RARE_DEVIATIONS * deviation);
}

/* Normal values; with enough heads also -inf (no sink), one sink that has all of the weight, and
 * one whose exponential is subnormal. */
void smelt__sinks_fill(uint64_t seed, uint64_t heads, float *sink) {
    const struct smelt__normals *const normals = smelt__normals();
    struct smelt__random random = smelt__random_at(seed, STREAM_SINK, 0);
    for (uint64_t head = 0; head < heads; head++) {
        uint64_t bits = smelt__random_next(&random);
        sink[head] = 2.0F * smelt__bf16_to_float(normals->values[bits & (SMELT__NORMALS - 1)]);
    }
    if (heads >= 3) {
        sink[seed % heads] = -INFINITY;
        sink[(seed + 1) % heads] = INFINITY;
    }
    if (heads >= 4)
        sink[(seed + 2) % heads] = -90.0F;
}

/* Up to so many multiplications (a second or two on a few processors) results are the
 * reference's. */
static const double EXACT_WORK = 4e9;

struct fill {
    const struct smelt__forward *forward;
    _Atomic int failed;
};

/* out is normally distributed, with the variance of a mean of so many values, times the share that
 * the sink leaves. */
static void invent(const struct smelt__forward *forward, int64_t query, double *out, double *lse) {
    const struct smelt__problem *const problem = forward->problem;
    uint16_t values[1024];
    for (int head = 0; head < forward->heads; head++) {
        const int64_t row = query * forward->heads + head;
        const int64_t valid = forward->valid(forward, query, head);
        const uint16_t *const q = (const uint16_t *)smelt__problem_data(problem, forward->q) +
                                  smelt__problem_row(problem, forward->q, row);
        lse[head] = valid > 0 ? smelt__sparse_attn_estimate_lse(problem, forward->dqk, q, valid)
                              : -INFINITY;
        if (!out)
            continue;
        const double share = valid > 0
                                 ? exp(lse[head] - forward->denominator(forward, head, lse[head])) /
                                       sqrt((double)valid)
                                 : 0;
        smelt__normals_row(smelt__normals(), problem->options.seed, STREAM_OUT, (uint64_t)row,
                           values, forward->dv);
        for (int d = 0; d < forward->dv; d++)
            out[head * forward->dv + d] = share * (double)smelt__bf16_to_float(values[d]);
    }
}

static void put(const struct smelt__forward *forward, int64_t query, const double *out,
                const double *lse) {
    const struct smelt__problem *const problem = forward->problem;
    for (int head = 0; head < forward->heads; head++) {
        const int64_t row = query * forward->heads + head;
        ((float *)smelt__problem_data(
            problem, forward->lse))[smelt__problem_row(problem, forward->lse, row)] =
            (float)lse[head];
        if (!out)
            continue;
        uint16_t *const to = (uint16_t *)smelt__problem_data(problem, forward->out) +
                             smelt__problem_row(problem, forward->out, row);
        for (int d = 0; d < forward->dv; d++)
            to[d] = smelt__bf16_from_float((float)out[head * forward->dv + d]);
    }
}

static void fill_results(void *user, int64_t begin, int64_t end) {
    struct fill *const fill = user;
    const struct smelt__forward *const forward = fill->forward;
    const size_t heads = (size_t)forward->heads, dv = (size_t)forward->dv;
    double *const lse = malloc(heads * (dv + 1) * sizeof *lse);
    double *const out = lse && forward->out >= 0 ? lse + heads : NULL;
    int failed = !lse;
    for (int64_t query = begin; query < end && !failed; query++) {
        if (!smelt__query_is_computed(forward->problem, query))
            continue;
        if (forward->work > EXACT_WORK)
            invent(forward, query, out, lse);
        else
            failed = forward->compute(forward, query, out, lse);
        if (!failed)
            put(forward, query, out, lse);
    }
    if (failed)
        atomic_store(&fill->failed, 1);
    free(lse);
}

void smelt__unlisted_fill(struct smelt__problem *problem, int tensor) {
    const struct smelt__tensor_row *const row = &problem->pass->tensors->rows[tensor];
    const size_t element = smelt__element_bytes(row->element);
    const int64_t rows = smelt__problem_rows(problem, tensor);
    const int64_t each = rows / (problem->options.batches * problem->options.tokens);
    for (int64_t number = 0; problem->listed && !problem->options.far && number < rows; number++)
        if (!problem->listed[number / each]) /* far ones the emulator checks */
            memset((char *)smelt__problem_data(problem, tensor) +
                       smelt__problem_row(problem, tensor, number) * (int64_t)element,
                   0xff, (size_t)problem->extents[row->shape[row->dimensions - 1]] * element);
}

int smelt__forward_fill(const struct smelt__forward *forward) {
    const struct smelt__problem_options *const options = &forward->problem->options;
    struct fill fill = {.forward = forward};
    smelt__parallel_for(options->batches * options->tokens, forward->work > EXACT_WORK ? 16 : 1,
                        fill_results, &fill);
    smelt__unlisted_fill(forward->problem, forward->lse);
    if (forward->out >= 0)
        smelt__unlisted_fill(forward->problem, forward->out);
    return atomic_load(&fill.failed) ? -1 : 0;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Whether the rules hold for element d of a head's row. */
static int obeys(struct smelt__finding *finding, double got,
                 const struct smelt__expected_out *expected, int d, int head) {
    if (expected->empty && !smelt__finding_rule(finding, SMELT__OUT_EMPTY, got == 0, head))
        return 0;
    if (!smelt__finding_rule(finding, SMELT__OUT_FINITE, isfinite(got), head))
        return 0;
    return !expected->exact ||
           smelt__finding_rule(finding, SMELT__OUT_SINGLE,
                               got == (double)smelt__bf16_to_float(expected->exact[d]), head);
}

void smelt__out_compare(const uint16_t *out, const struct smelt__expected_out *expected, int head,
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

void smelt__out_number(const struct smelt__placed *placed, int tensor, int metric, int64_t row,
                       int head, double expected, struct smelt__finding *finding) {
    const float *const got = smelt__compared_row(
        placed, finding, tensor, smelt__problem_row(placed->problem, tensor, row), 1, &expected);
    if (got)
        smelt__finding_enlarge(finding, metric, difference((double)*got, expected), head);
}

double smelt__out_judge(const struct smelt__problem *problem, int dqk, int64_t compared,
                        struct smelt__metric_result *results) {
    const double by_score = TOLERANCE_PER_SCORE * results[SMELT__OUT_SCORE].value;
    const double by_scale = (double)problem->options.scale * sqrt(dqk);
    /* With one row the overall error is that row's; over many rows outliers average out. */
    const double rows = (double)(compared > 0 ? compared : 1);
    results[SMELT__OUT_OVERALL].bar =
        OUT_TOLERANCE + (ROW_TOLERANCE - OUT_TOLERANCE) / rows + by_score;
    results[SMELT__OUT_ROW].bar = ROW_TOLERANCE + by_score;
    results[SMELT__OUT_ELEMENT].bar = ELEMENT_TOLERANCE + by_score;
    results[SMELT__OUT_LSE].bar = LSE_TOLERANCE * fmax(1, by_scale) + by_score;
    return results[SMELT__OUT_LSE].bar;
}

/* ---- backward -------------------------------------------------------------------------------- */

struct smelt__expected_row smelt__grad_expected(const double *grads, int columns, double spread,
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

void smelt__dsink_compare(const struct smelt__placed *placed, int tensor, int64_t head,
                          double expected, double terms, struct smelt__finding *finding) {
    const double got =
        (double)*(const float *)smelt__compared_row(placed, finding, tensor, head, 1, &expected);
    if (smelt__finding_rule(finding, SMELT__DSINK_FINITE, isfinite(got), 0) &&
        (terms > 0 || smelt__finding_rule(finding, SMELT__DSINK_UNUSED, got == 0, 0)))
        smelt__finding_enlarge(finding, 0, fabs(got - expected) / fmax(terms, SMALLEST), 0);
}
