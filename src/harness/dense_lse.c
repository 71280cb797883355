/* The harness's row of dense_lse, and what other rows share with it (dense.h). */
#include "smelt/dense_lse.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "harness/dense.h"
#include "harness/footprint.h"
#include "harness/indexer.h"
#include "harness/normal.h"
#include "harness/operator.h"
#include "harness/parallel.h"
#include "harness/placed.h"
#include "harness/random.h"
#include "harness/windows.h"
#include "ops/dense_lse_table.h"

#define TENSOR(name) SMELT__DENSE_LSE_##name

/* ---- what other rows share ------------------------------------------------------------------- */

enum { STREAM_Q = 301, STREAM_K };

int smelt__dense_fill(struct smelt__problem *problem, const struct smelt__dense_inputs *inputs,
                      uint8_t *used) {
    problem->computed = problem->options.batches * problem->options.tokens;
    problem->valid_slots = smelt__windows_fill(problem, inputs->window_begin, inputs->window_end);
    if (smelt__windows_used(problem, inputs->window_begin, inputs->window_end, used) != 0)
        return -1;
    smelt__normals_fill(problem, inputs->q, STREAM_Q);
    smelt__normals_fill(problem, inputs->k, STREAM_K);
    smelt__unused_fill(problem, inputs->k, used);
    return 0;
}

double smelt__dense_multiplications(const struct smelt__dense_lse_spec *spec,
                                    const struct smelt__problem_options *given) {
    return (double)(given->batches * given->tokens) * (double)given->rows * spec->heads * spec->dqk;
}

/* ---- problems -------------------------------------------------------------------------------- */

static const char *const options[] = {"width", "documents", "lists", "scale", NULL};

static struct smelt__dense_inputs inputs_of(const struct smelt__problem *problem) {
    const struct smelt__dense_lse_spec *spec = problem->spec;
    return (struct smelt__dense_inputs){*spec, TENSOR(Q), TENSOR(K), TENSOR(WINDOW_BEGIN),
                                        TENSOR(WINDOW_END)};
}

static int fill(struct smelt__problem *problem) {
    const struct smelt__dense_inputs inputs = inputs_of(problem);
    uint8_t *const used = malloc((size_t)problem->options.rows + 1);
    const int failed = !used || smelt__dense_fill(problem, &inputs, used);
    free(used);
    return failed ? -1 : 0;
}

/* ---- figures --------------------------------------------------------------------------------- */

static double multiplications(const void *spec, const struct smelt__problem_options *given) {
    return smelt__dense_multiplications(spec, given);
}

static int rates(const struct smelt__problem *problem,
                 struct smelt__rate found[SMELT__MOST_RATES]) {
    const struct smelt__dense_lse_spec *spec = problem->spec;
    const double ceiling = 690; /* TFLOP/s of one H200: a large bf16 product under sustained load */
    found[0] =
        SMELT__TFLOPS(2 * (double)problem->valid_slots * spec->heads * spec->dqk / 1e12, ceiling);
    return 1;
}

/* ---- comparison ------------------------------------------------------------------------------ */

enum { METRIC_LSE };
enum { RULE_EMPTY };

static const struct smelt__metric metrics[] = {
    [METRIC_LSE] = {"max_abs_error", "lse", "lse", "error of lse", SMELT__LARGEST,
                    SMELT__OF(TENSOR(LSE))},
};

static const struct smelt__rule rules[] = {
    [RULE_EMPTY] = {"empty", SMELT__OF(TENSOR(LSE)), "lse of an empty window is not -inf"},
};

static void compare_query(const struct smelt__placed *placed, const void *prepared, int64_t query,
                          struct smelt__finding *finding) {
    const struct smelt__problem *problem = placed->problem;
    const struct smelt__dense_lse_spec *spec = problem->spec;
    smelt_dense_lse_args args;
    (void)prepared;
    smelt__problem_arguments(problem, &args);
    for (int head = 0; head < spec->heads && !finding->broken; head++) {
        double expected, max_abs;
        if (smelt__dense_lse_reference(spec, &args, query, head, &expected, &max_abs)) {
            finding->failed = 1;
            return;
        }
        const float *const got =
            smelt__compared_at(placed, finding, TENSOR(LSE), query, head, 1, &expected);
        if (isinf(expected)) {
            smelt__finding_rule(finding, RULE_EMPTY, isinf(*got) && *got < 0, head);
            continue;
        }
        /* Relative to scores, whose error grows with them. */
        smelt__finding_enlarge(finding, METRIC_LSE, fabs((double)*got - expected) / (1 + max_abs),
                               head);
    }
}

static const struct smelt__comparison comparisons[] = {
    {
        SMELT__UNITS("query", "head", TENSOR(T)),
        SMELT__METRICS(metrics),
        SMELT__RULES(rules),
        .compare = compare_query,
        .bars = {[METRIC_LSE] = 4e-6},
    },
};

/* ---- the row --------------------------------------------------------------------------------- */

SMELT__KEY_TABLE(dense_lse, SMELT__DENSE_LSE_KEYS)

static const struct smelt__harness_pass passes[] = {
    {SMELT__PASS(FORWARD, "forward", &smelt__dense_lse_table), .leaves_free = 1},
};

static const struct smelt__harness_shape peers[] = {
    {.spec = "dense_lse:heads=64,dqk=576",
     .tokens = 8192,
     .rows = 8192,
     .lists = SMELT__LISTS_CAUSAL,
     .documents = 1},
};

const struct smelt__harness_operator smelt__harness_dense_lse = {
    SMELT__HARNESS_ROW(dense_lse),
    SMELT__HARNESS_KEYS(dense_lse),
    /* More keys than a tile, more queries than an item. */
    .small = {.tokens = 7, .patterns = 12, .rows = 300, .width = 100},
    .most = {.rows = 700, .width = 700},
    .bench = {.tokens = 8192, .rows = 8192, .lists = SMELT__LISTS_CAUSAL, .documents = 1},
};
