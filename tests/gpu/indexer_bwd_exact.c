/* The indexer's deterministic backward pass sums dk without rounding: the addends of a row are multiples
 * of a power of two, so large that the bound of the row's sum needs at most 24 bits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "indexer_training_groups.h"
#include "ops/indexer_bwd_table.h"
#include "reference/bf16.h"

#define TENSOR(name) SMELT__INDEXER_BWD_##name

/* A query's largest sum over the heads of |w q|, for any column. */
static double find_reach(const struct smelt__problem *problem, int64_t query) {
    const struct smelt__indexer_bwd_spec *const spec = problem->spec;
    const float *const weights = smelt__problem_data(problem, TENSOR(WEIGHTS));
    const uint16_t *const q = smelt__problem_data(problem, TENSOR(Q));
    double most = 0;
    for (int column = 0; column < spec->dim; column++) {
        double sum = 0;
        for (int64_t row = query * spec->heads; row < (query + 1) * spec->heads; row++)
            sum += fabs((double)weights[row] *
                        (double)smelt__bf16_to_float(q[row * spec->dim + column]));
        most = fmax(most, sum);
    }
    return most;
}

/* Bounds of what all queries add to each row: [rows], zeroed; `grads`: [rows], for one query's. */
static void find_bounds(const struct smelt__problem *problem, double *bounds, double *grads) {
    const int64_t rows = problem->options.rows, width = problem->options.width;
    const int32_t *const indices = smelt__problem_data(problem, TENSOR(INDICES));
    const float *const grad = smelt__problem_data(problem, TENSOR(GRAD));
    for (int64_t query = 0; query < problem->options.tokens; query++) {
        const double reach = find_reach(problem, query);
        for (int64_t row = 0; row < rows; row++)
            grads[row] = 0;
        for (int64_t i = query * width; i < (query + 1) * width; i++)
            if (indices[i] >= 0 && indices[i] < rows)
                grads[indices[i]] += (double)grad[i];
        for (int64_t row = 0; row < rows; row++)
            bounds[row] += fabs(grads[row]) * reach;
    }
}

static void judge(const struct workload *work, const double *bounds, char *message, size_t size) {
    enum { DIGITS = 24 };
    const struct smelt__indexer_bwd_spec *const spec = work->problem.spec;
    for (int64_t key = 0; key < work->problem.options.rows && !message[0]; key++) {
        const float *const row = smelt__placed_row(&work->placed, TENSOR(DK_FP32), key, 0, 0);
        const double unit = bounds[key] > 0 ? exp2(ceil(log2(bounds[key])) - DIGITS) : 1;
        for (int column = 0; column < spec->dim && !message[0]; column++)
            if (fmod((double)row[column], unit) != 0)
                snprintf(message, size, "dk[%lld, %d] is %.9g, no multiple of %g", (long long)key,
                         column, (double)row[column], unit);
    }
}

/* Makes one column of each query's heads the largest, another one for each query. */
static void raise_columns(const struct smelt__problem *problem) {
    const struct smelt__indexer_bwd_spec *const spec = problem->spec;
    uint16_t *const q = smelt__problem_data(problem, TENSOR(Q));
    for (int64_t row = 0; row < problem->options.tokens * spec->heads; row++)
        q[row * spec->dim + row / spec->heads * 5 % spec->dim] =
            smelt__bf16_from_float(row % 2 ? 8.0F : -8.0F);
}

/* Makes the gradients so small that units for ordinary gradients would round them to 0. */
static void lower_grads(const struct smelt__problem *problem) {
    float *const grad = smelt__problem_data(problem, TENSOR(GRAD));
    for (int64_t i = 0; i < problem->options.tokens * problem->options.width; i++)
        grad[i] = ldexpf(grad[i], -80);
}

static void run_case(struct suite *suite, const char *name, const struct suite_case *one,
                     int small) {
    struct workload work;
    char message[512] = "";
    if (workload_open(&work, suite, one->spec, &one->problem, message, sizeof message) == 0) {
        const size_t rows = (size_t)one->problem.rows;
        double *const bounds = calloc(2 * rows, sizeof *bounds);
        raise_columns(&work.problem);
        if (small)
            lower_grads(&work.problem);
        if (!bounds)
            snprintf(message, sizeof message, "out of memory");
        else if (suite_ok(smelt__placed_refresh(&work.placed), "upload", message, sizeof message) ==
                     0 &&
                 suite_ok(smelt__placed_run(&work.placed, work.object, NULL), "backward", message,
                          sizeof message) == 0) {
            find_bounds(&work.problem, bounds, bounds + rows);
            judge(&work, bounds, message, sizeof message);
            if (!message[0])
                workload_judge(&work, message, sizeof message);
        }
        free(bounds);
        workload_close(&work);
    }
    suite_report(suite, name, message);
}

/* One head, several, and more rows than the kernel has bins; every other case with small gradients. */
void run_indexer_bwd_exact(struct suite *suite) {
    static const struct suite_case cases[] = {
        SUITE_CASE("exact: several heads", "indexer_bwd:heads=13,dim=64,topk=60,deterministic=1", 0,
                   .tokens = 27, .rows = 90, .lists = SMELT__LISTS_ADVERSARIAL),
        SUITE_CASE("exact: one head", "indexer_bwd:heads=1,dim=128,topk=60,deterministic=1", 0,
                   .tokens = 40, .rows = 70, .lists = SMELT__LISTS_DRIFT),
        SUITE_CASE("exact: many heads", "indexer_bwd:heads=64,dim=64,topk=60,deterministic=1", 0,
                   .tokens = 9, .rows = 70),
        SUITE_CASE("exact: many rows", "indexer_bwd:heads=3,dim=64,topk=300,deterministic=1", 0,
                   .tokens = 2, .rows = 16400),
    };
    for (int i = 0; i < COUNT(cases); i++) {
        struct suite_case one = cases[i];
        one.problem.seed = 2 * suite->seed; /* without limits */
        one.problem.dkv = SMELT__DKV_FP32;
        one.problem.tokens *= suite->emulated ? 1 : 30;
        if (suite_wants(suite, one.name))
            run_case(suite, one.name, &one, i % 2);
    }
}
