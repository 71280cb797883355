/* The harness's row of the tests' toy operator. */
#include <math.h>
#include <stdio.h>

#include "harness/operator.h"
#include "harness/placed.h"
#include "harness/random.h"
#include "ops/toy_table.h"
#include "smelt/toy.h"

enum { STREAM_FROM = 1, STREAM_BEFORE };

static const float FACTOR = 1.75F;

/* The definition of an element; `before`: the previous value, for the pass that adds. */
static double scaled(double factor, double from, double before) {
    return factor * from + before;
}

struct toy_spec {
    int width;
};

/* ---- problems -------------------------------------------------------------------------------- */

enum { SIGN }; /* own options by number */
enum sign { ANY_SIGN, POSITIVE };

static const char *const signs[] = {"any", "positive", NULL};
static const char *const options[] = {NULL};
static const struct smelt__option own_options[] = {
    {"sign", SMELT__OPTION_CHOICE, offsetof(struct smelt__problem_options, own[SIGN]), 0, 0, signs,
     "of the rows' elements", 0},
};

static const struct smelt__problem_options kinds[] = {{.strided = 0}, {.strided = 1}};

static const char *inputs(const struct smelt__problem_options *given) {
    return given->own[SIGN] == POSITIVE ? "positive" : given->strided ? "strided" : "packed";
}

static void shape_forward(struct smelt__problem *problem) {
    smelt_toy_args *args = problem->args;
    args->factor = FACTOR;
}

static void shape_backward(struct smelt__problem *problem) {
    smelt_toy_grad_args *args = problem->args;
    args->factor = FACTOR;
}

static int64_t count_rows(const struct smelt__problem *problem) {
    return problem->extents[SMELT__TOY_T];
}

static void fill_rows(struct smelt__problem *problem, int tensor, uint64_t stream) {
    float *to = smelt__problem_data(problem, tensor);
    for (int64_t row = 0; row < count_rows(problem); row++) {
        struct smelt__random random =
            smelt__random_at(problem->options.seed, stream, (uint64_t)row);
        for (int64_t i = 0; i < problem->extents[SMELT__TOY_WIDTH]; i++) {
            const float any = (float)(smelt__random_below(&random, 2001) - 1000) / 64.0F;
            const float drawn = smelt__random_below(&random, 8) ? any : 0.0F;
            to[smelt__problem_at(problem, tensor, row, 0, 0) + i] =
                problem->options.own[SIGN] == POSITIVE ? fabsf(drawn) : drawn;
        }
    }
}

static int fill_forward(struct smelt__problem *problem) {
    problem->computed = count_rows(problem);
    fill_rows(problem, SMELT__TOY_X, STREAM_FROM);
    return 0;
}

static int fill_backward(struct smelt__problem *problem) {
    problem->computed = count_rows(problem);
    fill_rows(problem, SMELT__TOY_GRAD_GRAD, STREAM_FROM);
    fill_rows(problem, SMELT__TOY_GRAD_DX, STREAM_BEFORE);
    return 0;
}

static double multiplications(const void *spec, const struct smelt__problem_options *given) {
    const struct toy_spec *toy = spec;
    return (double)(given->batches * given->tokens * toy->width);
}

/* ---- comparison ------------------------------------------------------------------------------ */

/* The metrics and rules of a comparison, with the outputs that they cover. check fails if an output
 * was not compared; tests/toy/compared/toy.txt records what is accepted. */
#define ROWS(output)                                                                               \
    {                                                                                              \
        { "max_abs_error", "rows", "rows", "error of a row", SMELT__LARGEST, SMELT__OF(output) }   \
    }

static const struct smelt__metric forward_metrics[] = ROWS(SMELT__TOY_OUT),
                                  backward_metrics[] = ROWS(SMELT__TOY_GRAD_DX);

static const struct smelt__rule forward_rules[] = {
    {"zero", SMELT__OF(SMELT__TOY_OUT), "what a factor makes of 0 is not 0"}};

/* Products of small numbers, with one rounding in the sum. */
static const double TOLERANCE = 1e-5;

static void compare(const struct smelt__placed *placed, int from, int to, int64_t row,
                    struct smelt__finding *finding) {
    const struct smelt__problem *problem = placed->problem;
    const int64_t first = smelt__problem_at(problem, to, row, 0, 0);
    const float *source = smelt__problem_data(problem, from);
    const float *before = smelt__problem_data(problem, to); /* NULL: it is overwritten */
    for (int64_t i = 0; i < problem->extents[SMELT__TOY_WIDTH]; i++) {
        const double start = before ? (double)before[first + i] : 0;
        const double expected = scaled(
            (double)FACTOR, (double)source[smelt__problem_at(problem, from, row, 0, 0) + i], start);
        const float *const got = smelt__compared_row(placed, finding, to, first + i, 1, &expected);
        if (!before && expected == 0)
            smelt__finding_rule(finding, 0, *got == 0, i);
        smelt__finding_enlarge(finding, 0, fabs((double)*got - expected), i);
    }
}

static void compare_forward(const struct smelt__placed *placed, const void *prepared, int64_t row,
                            struct smelt__finding *finding) {
    (void)prepared;
    compare(placed, SMELT__TOY_X, SMELT__TOY_OUT, row, finding);
}

static void compare_backward(const struct smelt__placed *placed, const void *prepared, int64_t row,
                             struct smelt__finding *finding) {
    (void)prepared;
    compare(placed, SMELT__TOY_GRAD_GRAD, SMELT__TOY_GRAD_DX, row, finding);
}

static void judge(const struct smelt__problem *problem, int64_t compared,
                  struct smelt__metric_result *results) {
    (void)problem, (void)compared;
    results[0].bar = TOLERANCE;
}

static const struct smelt__comparison forward_by_row = {.unit = "row",
                                                        .part = "element",
                                                        .metrics = forward_metrics,
                                                        .metric_count = 1,
                                                        .rules = forward_rules,
                                                        .rule_count = 1,
                                                        .count = count_rows,
                                                        .compare = compare_forward,
                                                        .judge = judge};

static const struct smelt__comparison backward_by_row = {.unit = "row",
                                                         .part = "element",
                                                         .metrics = backward_metrics,
                                                         .metric_count = 1,
                                                         .count = count_rows,
                                                         .compare = compare_backward,
                                                         .judge = judge};

/* ---- the row --------------------------------------------------------------------------------- */

static const struct smelt__harness_key keys[] = {{"width", offsetof(struct toy_spec, width), 0},
                                                 {NULL, 0, 0}};

static const struct smelt__harness_pass passes[] = {
    {.pass = SMELT_PASS_FORWARD,
     .name = "forward",
     .tensors = &smelt__toy_table,
     .shape = shape_forward,
     .fill = fill_forward,
     .multiplications = multiplications,
     .comparisons = &forward_by_row,
     .comparison_count = 1},
    {.pass = SMELT_PASS_BACKWARD,
     .name = "backward",
     .tensors = &smelt__toy_grad_table,
     .shape = shape_backward,
     .fill = fill_backward,
     .multiplications = multiplications,
     .comparisons = &backward_by_row,
     .comparison_count = 1},
};

const struct smelt__harness_operator smelt__harness_toy = {
    .name = "toy",
    .spec_bytes = sizeof(struct toy_spec),
    .keys = keys,
    .passes = passes,
    .pass_count = sizeof passes / sizeof passes[0],
    .options = options,
    .own_options = own_options,
    .own_option_count = sizeof own_options / sizeof own_options[0],
    .rows = 1, /* it has none */
    .small = {.tokens = 5},
    .trial = {.tokens = 7},
    SMELT__KINDS(kinds),
    .inputs = inputs,
    .bench = {.tokens = 4096},
};
