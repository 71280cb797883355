/* See grad_rows.h. */
#include "harness/grad_rows.h"

#include <math.h>
#include <stdlib.h>

#include "harness/footprint.h"
#include "harness/normal.h"
#include "harness/parallel.h"
#include "reference/bf16.h"

/* Rounding to bf16 has a relative error of at most 2^-8, and 1.7e-3 in the mean square. The
 * products' factors are rounded, and so are results in bf16. A row with a single term has both
 * errors in full: 5e-3 was measured. */
static const double OVERALL_TOLERANCE = 4e-3, ROW_TOLERANCE = 8e-3;
/* Rows with a smaller norm are compared as if they had this one, below which numbers leave fp32's
 * normal range; and the rounding error of fp32 where a gradient is added to previous values. */
static const double SMALLEST_ROW_NORM = 1e-30, FP32_ROUNDING = 0x1p-24;

/* ---- any rows -------------------------------------------------------------------------------- */

void smelt__grad_row_compare(const double *got, const struct smelt__expected_row *expected,
                             int64_t part, struct smelt__finding *finding) {
    double different = 0, reference = 0;
    for (int d = 0; d < expected->columns; d++) {
        const double delta = got[d] - expected->grads[d];
        if (!smelt__finding_rule(finding, SMELT__GRAD_FINITE, isfinite(got[d]), part) ||
            (expected->none &&
             !smelt__finding_rule(finding, SMELT__GRAD_NOTHING, got[d] == 0, part)))
            return;
        different += delta * delta;
        reference += expected->grads[d] * expected->grads[d];
        smelt__finding_enlarge(finding, SMELT__GRAD_ABSOLUTE, fabs(delta), part);
    }
    /* The error that fp32 rounding permits is added to the norm, scaled so that it uses up the bar
     * at most. */
    const double norm = fmax(fmax(sqrt(reference), expected->spread), SMALLEST_ROW_NORM);
    smelt__finding_enlarge(finding, SMELT__GRAD_ROW,
                           sqrt(different) / (norm + expected->lost / ROW_TOLERANCE), part);
    const double weight = norm * norm + pow(expected->lost / OVERALL_TOLERANCE, 2);
    finding->metrics[SMELT__GRAD_OVERALL].value += different;
    finding->metrics[SMELT__GRAD_OVERALL].weight += weight;
    finding->metrics[SMELT__GRAD_OVERALL].heaviest =
        fmax(finding->metrics[SMELT__GRAD_OVERALL].heaviest, weight);
}

/* If there is one row, or one outweighs all others, the overall error is that row's error; over
 * many rows outliers average out. */
void smelt__grad_rows_judge(double more, struct smelt__metric_result *results) {
    const double rows = fmax(results[SMELT__GRAD_OVERALL].parts, 1);
    results[SMELT__GRAD_OVERALL].bar =
        OVERALL_TOLERANCE + (ROW_TOLERANCE - OVERALL_TOLERANCE) / rows + more;
    results[SMELT__GRAD_ROW].bar = ROW_TOLERANCE + more;
}

void smelt__grad_rows_bars(const struct smelt__problem *problem, int64_t compared,
                           struct smelt__metric_result *results) {
    (void)problem, (void)compared;
    smelt__grad_rows_judge(0, results);
}

/* ---- gradients by keys ----------------------------------------------------------------------- */

/* The shapes of these tensors: [S, columns], [B, S, columns] or [B, S, Hkv, columns]. Keys are numbered in
 * the order of their rows. */
static int tensor_of(const struct smelt__problem *problem, const struct smelt__key_rows *rows) {
    return problem->options.dkv == SMELT__DKV_BF16   ? rows->bf16
           : problem->options.dkv == SMELT__DKV_FP32 ? rows->fp32
                                                     : rows->sum;
}

int smelt__key_rows_given(const struct smelt__problem *problem, const struct smelt__key_rows *rows,
                          int tensor) {
    return tensor == tensor_of(problem, rows);
}

static float *sum_row(const struct smelt__problem *problem, const struct smelt__key_rows *rows,
                      int64_t key) {
    float *const sums = smelt__problem_data(problem, rows->sum);
    return sums ? sums + smelt__problem_row(problem, rows->sum, key) : NULL;
}

struct fill {
    const struct smelt__problem *problem;
    const struct smelt__key_rows *rows;
    uint64_t stream;
    const struct smelt__normals *normals;
};

static void fill_rows(void *user, int64_t begin, int64_t end) {
    enum { PIECE = 64 };
    static const float FACTOR = 0.7F;
    const struct fill *fill = user;
    const int columns = fill->rows->columns;
    uint16_t values[PIECE];
    for (int64_t key = begin; key < end; key++) {
        float *const to = sum_row(fill->problem, fill->rows, key);
        for (int d = 0; d < columns; d++) {
            if (d % PIECE == 0)
                smelt__normals_row(fill->normals, fill->problem->options.seed, fill->stream,
                                   (uint64_t)key * (uint64_t)columns + (uint64_t)d, values, PIECE);
            to[d] = FACTOR * smelt__bf16_to_float(values[d % PIECE]);
        }
    }
}

int smelt__key_rows_fill(struct smelt__problem *problem, const struct smelt__key_rows *rows,
                         uint64_t stream) {
    if (!smelt__problem_data(problem, rows->sum))
        return 0;
    struct fill *const fill = malloc(sizeof *fill);
    if (!fill)
        return -1;
    fill->problem = problem;
    fill->rows = rows;
    fill->stream = stream;
    fill->normals = smelt__normals();
    smelt__parallel_for(smelt__problem_rows(problem, rows->sum), 256, fill_rows, fill);
    free(fill);
    return 0;
}

const void *smelt__key_row(const struct smelt__placed *placed, const struct smelt__key_rows *rows,
                           int64_t key) {
    const int tensor = tensor_of(placed->problem, rows);
    return smelt__placed_element(placed, tensor, smelt__problem_row(placed->problem, tensor, key));
}

const float *smelt__key_row_before(const struct smelt__problem *problem,
                                   const struct smelt__key_rows *rows, int64_t key) {
    return sum_row(problem, rows, key);
}

int smelt__key_row_read(const struct smelt__placed *placed, const struct smelt__key_rows *rows,
                        int64_t key, struct smelt__expected_row *expected, double *got,
                        struct smelt__finding *finding) {
    const struct smelt__problem *problem = placed->problem;
    const int tensor = tensor_of(problem, rows);
    const float *const before = smelt__key_row_before(problem, rows, key);
    double *const whole = malloc((size_t)rows->columns * sizeof *whole), square = 0;
    if (!whole)
        return -1;
    for (int d = 0; d < rows->columns; d++)
        whole[d] = expected->grads[d] + (before ? (double)before[d] : 0);
    const int64_t first = smelt__problem_row(problem, tensor, key);
    const void *const row =
        smelt__compared_row(placed, finding, tensor, first, rows->columns, whole);
    const uint16_t *const half = row;
    const float *const single = row;
    for (int d = 0; d < rows->columns; d++) {
        got[d] = placed->problem->options.dkv == SMELT__DKV_BF16
                     ? (double)smelt__bf16_to_float(half[d])
                     : (double)single[d];
        if (before) {
            got[d] -= (double)before[d];
            square += (double)before[d] * (double)before[d];
        }
    }
    free(whole);
    expected->lost += FP32_ROUNDING * sqrt(square);
    return 0;
}
