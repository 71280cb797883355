/* See indexer.h. */
#include "harness/indexer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/lists.h"
#include "harness/normal.h"
#include "harness/parallel.h"
#include "harness/placed.h"
#include "harness/random.h"
#include "harness/windows.h"
#include "reference/bf16.h"
#include "reference/e4m3.h"
#include "reference/operators.h"
#include "smelt/indexer_logits.h"

/* ---- inputs ---------------------------------------------------------------------------------- */

enum { STREAM_Q = 1, STREAM_K, STREAM_WEIGHTS, STREAM_SCALE, STREAM_ODD, STREAM_CANDIDATES = 99 };
enum {
    ODD_ONE_IN = 16, /* one in so many keys, rows of weights and scales is odd, with adversarial
                        lists */
    WIDEST = 128     /* of a head */
};

/* Normally distributed values are multiplied by this before rounding to e4m3, so that rows have
 * about the range of quantised ones, up to 448; k_scale is near its inverse. */
static const float FP8_RANGE = 100.0F;

struct fill {
    struct smelt__problem *problem;
    const struct smelt__indexer_inputs *inputs;
    const struct smelt__normals *normals;
    uint8_t e4m3[1 << 16]; /* of each bf16, times FP8_RANGE */
    const uint8_t *used;   /* [rows] whether a window has the key */
};

/* Whether row `row` of a stream is odd, and which kind of odd: 0 to 3. */
static int is_odd(const struct fill *fill, uint64_t stream, int64_t row, int *kind) {
    struct smelt__random random =
        smelt__random_at(fill->problem->options.seed, STREAM_ODD + stream, (uint64_t)row);
    *kind = (int)smelt__random_below(&random, 4);
    return fill->problem->options.lists == SMELT__LISTS_ADVERSARIAL &&
           smelt__random_below(&random, ODD_ONE_IN) == 0;
}

/* NaN, an infinity, or a negative number, which turns a logit of 0 into -0. */
static float odd_number(int kind) {
    return kind == 0 ? NAN : kind == 1 ? INFINITY : kind == 2 ? -INFINITY : -0.03F;
}

/* Every second negative number is replaced: with keys of e4m3's smallest number it gives logits
 * that are too small for fp32. All weights of such a query are multiplied by it. */
enum { BELOW_0 = 3, MOST_HEADS = 128 };
static const float TINY_WEIGHT = 1e-43F, TINY_SCALE = -3e-45F;

static void *row_at(const struct fill *fill, int tensor, int64_t i, int64_t k) {
    char *data = smelt__problem_data(fill->problem, tensor);
    const enum smelt__element element = fill->problem->pass->tensors->rows[tensor].element;
    return data + smelt__problem_at(fill->problem, tensor, i, k, 0) *
                      (int64_t)smelt__element_bytes(element);
}

void smelt__indexer_store_weight(const struct smelt__problem *problem, int tensor, int64_t query,
                                 int head, float weight) {
    void *const data = smelt__problem_data(problem, tensor);
    const int64_t at = smelt__problem_at(problem, tensor, query, 0, 0) + head;
    if (problem->pass->tensors->rows[tensor].element == SMELT__BF16)
        ((uint16_t *)data)[at] = smelt__bf16_from_float(weight);
    else
        ((float *)data)[at] = weight;
}

/* One row of q or k. */
static void fill_row(const struct fill *fill, uint64_t stream, int64_t row, void *to) {
    const int dim = fill->inputs->dim;
    uint16_t values[WIDEST];
    smelt__normals_row(fill->normals, fill->problem->options.seed, stream, (uint64_t)row, values,
                       dim);
    if (fill->inputs->dtype == SMELT__DTYPE_BF16) {
        memcpy(to, values, (size_t)dim * sizeof *values);
        return;
    }
    for (int d = 0; d < dim; d++)
        ((uint8_t *)to)[d] = fill->e4m3[values[d]];
}

static void fill_queries(void *user, int64_t begin, int64_t end) {
    const struct fill *fill = user;
    const int heads = fill->inputs->heads;
    for (int64_t query = begin; query < end; query++) {
        int kind;
        struct smelt__random random =
            smelt__random_at(fill->problem->options.seed, STREAM_WEIGHTS, (uint64_t)query);
        for (int h = 0; h < heads; h++)
            fill_row(fill, STREAM_Q, query * heads + h, row_at(fill, fill->inputs->q, query, h));
        if (fill->inputs->weights < 0)
            continue;
        float weights[MOST_HEADS];
        for (int h = 0; h < heads; h++)
            weights[h] = (float)(smelt__random_below(&random, 2001) - 800) / 1000.0F;
        const int odd = is_odd(fill, STREAM_WEIGHTS, query, &kind);
        if (odd)
            weights[smelt__random_below(&random, heads)] = odd_number(kind);
        for (int h = 0; h < heads; h++)
            smelt__indexer_store_weight(
                fill->problem, fill->inputs->weights, query, h,
                odd && kind == BELOW_0 && query % 2 ? weights[h] * TINY_WEIGHT : weights[h]);
    }
}

/* Makes some numbers of a key in a window NaN or infinite; with BELOW_0, all numbers of it e4m3's
 * smallest. */
static void make_odd(const struct fill *fill, int64_t key, int kind, void *row) {
    const int64_t d = key % fill->inputs->dim;
    if (fill->inputs->dtype == SMELT__DTYPE_BF16) {
        ((uint16_t *)row)[d] = smelt__bf16_from_float(odd_number(kind));
        return;
    }
    if (kind == BELOW_0)
        memset(row, 0, (size_t)fill->inputs->dim);
    ((uint8_t *)row)[d] = kind == BELOW_0 ? 1 : kind == 1 ? 0x7f : 0xff; /* both NaNs */
}

static void fill_keys(void *user, int64_t begin, int64_t end) {
    const struct fill *fill = user;
    float *const scales = fill->inputs->k_scale < 0
                              ? NULL
                              : smelt__problem_data(fill->problem, fill->inputs->k_scale);
    for (int64_t key = begin; key < end; key++) {
        void *const row = row_at(fill, fill->inputs->k, key, 0);
        int kind;
        struct smelt__random random =
            smelt__random_at(fill->problem->options.seed, STREAM_SCALE, (uint64_t)key);
        fill_row(fill, STREAM_K, key, row);
        if (is_odd(fill, STREAM_K, key, &kind))
            make_odd(fill, key, kind, row);
        if (scales)
            scales[key] = (float)(500 + smelt__random_below(&random, 1000)) / 1000.0F / FP8_RANGE;
        if (scales && is_odd(fill, STREAM_SCALE, key, &kind)) {
            scales[key] = kind == BELOW_0 && key % 2 ? TINY_SCALE : odd_number(kind);
            if (scales[key] == TINY_SCALE)
                make_odd(fill, key, kind, row);
        }
        if (fill->used[key])
            continue;
        memset(row, 0xff,
               (size_t)fill->inputs->dim * (fill->inputs->dtype == SMELT__DTYPE_BF16 ? 2 : 1));
        if (scales)
            scales[key] = NAN;
    }
}

int smelt__indexer_fill_rows(struct smelt__problem *problem,
                             const struct smelt__indexer_inputs *inputs, const uint8_t *used) {
    struct fill *fill = calloc(1, sizeof *fill);
    if (!fill)
        return -1;
    fill->problem = problem;
    fill->inputs = inputs;
    fill->used = used;
    problem->computed = problem->options.batches * problem->options.tokens;
    fill->normals = smelt__normals();
    for (int bits = 0; bits < 1 << 16; bits++)
        fill->e4m3[bits] = smelt__e4m3_from_float(FP8_RANGE * smelt__bf16_to_float((uint16_t)bits));
    smelt__parallel_for(problem->computed, 16, fill_queries, fill);
    smelt__parallel_for(problem->options.rows, 256, fill_keys, fill);
    free(fill);
    return 0;
}

int smelt__indexer_fill(struct smelt__problem *problem,
                        const struct smelt__indexer_inputs *inputs) {
    uint8_t *const used = malloc((size_t)problem->options.rows);
    if (!used)
        return -1;
    problem->valid_slots = smelt__windows_fill(problem, inputs->window_begin, inputs->window_end);
    const int failed =
        smelt__windows_used(problem, inputs->window_begin, inputs->window_end, used) ||
        smelt__indexer_fill_rows(problem, inputs, used);
    free(used);
    return failed ? -1 : 0;
}

/* ---- candidates ------------------------------------------------------------------------------ */

int64_t smelt__candidates_default(int64_t block, int64_t rows) {
    enum { MOST = 2048 };
    if (!block)
        return 0;
    const int64_t half = (rows / block + 2) / 2;
    return half < MOST ? half : MOST;
}

void smelt__candidates_fill(struct smelt__problem *problem, int tensor, int64_t block,
                            int unordered) {
    static const int32_t none[] = {-1, INT32_MIN, INT32_MAX};
    int32_t *const data = smelt__problem_data(problem, tensor);
    const int64_t count = problem->extents[problem->pass->tensors->rows[tensor].shape[1]];
    const int64_t queries = problem->options.batches * problem->options.tokens;
    const int64_t blocks = block ? (problem->options.rows + block - 1) / block : 0;
    const int64_t step = count > 0 && count < blocks ? blocks / count : 1;
    const int odd = problem->options.lists == SMELT__LISTS_ADVERSARIAL;
    for (int64_t query = 0; data && query < queries; query++) {
        struct smelt__random random =
            smelt__random_at(problem->options.seed, STREAM_CANDIDATES, (uint64_t)query);
        int32_t *const row = data + smelt__problem_at(problem, tensor, query, 0, 0);
        for (int64_t c = 0; c < count; c++) {
            const int64_t drawn = c * step + smelt__random_below(&random, step);
            row[c] = drawn < blocks ? (int32_t)drawn : -1;
            if (odd && smelt__random_below(&random, 4) == 0)
                row[c] = none[smelt__random_below(&random, 3)];
            else if (odd && unordered)
                row[c] = (int32_t)smelt__random_below(&random, blocks + 1);
        }
    }
}

/* ---- comparison ------------------------------------------------------------------------------ */

double smelt__logits_error(double got, double expected) {
    return fmax(fabs(got - expected) - SMELT__LOGIT_UNDERFLOW, 0);
}

void smelt__logits_compare(float got, double expected, double terms, int64_t part,
                           struct smelt__finding *finding) {
    if (!smelt__finding_rule(finding, SMELT__LOGITS_NUMBER,
                             !isnan(got) && !(got == 0 && signbit(got)), part) ||
        !smelt__finding_rule(finding, SMELT__LOGITS_INFINITE,
                             smelt__indexer_logit_fits((double)got, expected, terms), part))
        return;
    if (!isfinite(expected) || !isfinite(terms))
        return;
    const double error = smelt__logits_error((double)got, expected);
    smelt__finding_enlarge(finding, SMELT__LOGITS_ABSOLUTE, error, part);
    smelt__finding_enlarge(finding, SMELT__LOGITS_RELATIVE, error > 0 ? error / terms : 0, part);
}

/* ---- gradients ------------------------------------------------------------------------------- */

void smelt__indexer_query_judge(int weights_dtype, double tolerance,
                                struct smelt__metric_result *results) {
    smelt__grad_rows_judge(0, results);
    results[SMELT__INDEXER_DWEIGHTS].bar =
        tolerance + (weights_dtype == SMELT__WEIGHTS_BF16 ? 0x1p-8 : 0);
}

static struct smelt__expected_row expected_row(const struct smelt__indexer_bwd_row *row,
                                               int columns, double lost) {
    return (struct smelt__expected_row){
        .grads = row->grads,
        .columns = columns,
        .spread = row->spread,
        .lost = row->doubtful + lost,
        .none = row->spread == 0 && row->doubtful == 0 && lost == 0,
    };
}

static double compared_dweight(const struct smelt__placed *placed, struct smelt__finding *finding,
                               const struct smelt__indexer_head *head, const double *expected) {
    const int64_t at = smelt__problem_at(placed->problem, head->dweights, head->query, 0, 0);
    const void *const row =
        smelt__compared_row(placed, finding, head->dweights, at + head->head, 1, expected);
    return (double)(placed->pass->tensors->rows[head->dweights].element == SMELT__BF16
                        ? smelt__bf16_to_float(*(const uint16_t *)row)
                        : *(const float *)row);
}

void smelt__indexer_head_compare(const struct smelt__placed *placed,
                                 const struct smelt__indexer_head *head,
                                 const struct smelt__indexer_bwd_spec *spec,
                                 const smelt_indexer_bwd_args *args, double *memory,
                                 struct smelt__finding *finding) {
    struct smelt__indexer_bwd_row row = {.grads = memory};
    double *const got = memory + spec->dim, expected_dweights, terms;
    if (smelt__indexer_bwd_head(spec, args, head->query, head->within, &row, &expected_dweights,
                                &terms)) {
        finding->failed = 1;
        return;
    }
    const uint16_t *const dq = smelt__compared_at(placed, finding, head->dq, head->query,
                                                  head->head, spec->dim, row.grads);
    const double dweights = compared_dweight(placed, finding, head, &expected_dweights);
    const double weight =
        smelt__indexer_weight(&args->weights, spec->weights_dtype, head->query, head->within);
    for (int d = 0; d < spec->dim; d++)
        got[d] = (double)smelt__bf16_to_float(dq[d]);
    const struct smelt__expected_row expected =
        expected_row(&row, spec->dim, head->lost == 0 ? 0 : head->lost * fabs(weight));
    smelt__grad_row_compare(got, &expected, head->head, finding);
    const double error = fabs(dweights - expected_dweights);
    smelt__finding_enlarge(finding, SMELT__INDEXER_DWEIGHTS,
                           error > 0 || isnan(error) ? error / (terms + head->more) : 0,
                           head->head);
}

void smelt__indexer_key_compare(const struct smelt__placed *placed,
                                const struct smelt__key_rows *rows, int64_t key,
                                const struct smelt__indexer_bwd_row *row, double lost, double *got,
                                struct smelt__finding *finding) {
    struct smelt__expected_row expected = expected_row(row, rows->columns, lost);
    finding->failed = smelt__key_row_read(placed, rows, key, &expected, got, finding) != 0;
    if (!finding->failed)
        smelt__grad_row_compare(got, &expected, 0, finding);
}
