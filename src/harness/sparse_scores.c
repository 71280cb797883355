/* The harness's row of sparse_scores. Its problems are those of the attention whose probabilities
 * it computes. */
#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "harness/attention.h"
#include "harness/footprint.h"
#include "harness/operator.h"
#include "harness/parallel.h"
#include "harness/placed.h"
#include "harness/sparse_attn.h"
#include "harness/target.h"
#include "ops/sparse_scores_table.h"
#include "reference/operators.h"
#include "smelt/sparse_scores.h"

#define TENSOR(name) SMELT__SPARSE_SCORES_##name

/* ---- options --------------------------------------------------------------------------------- */

static const char *const options[] = {"width", "valid", "documents",   "lists", "query-list",
                                      "scale", "spiky", "topk-length", NULL};

static void defaults(const void *spec, struct smelt__problem_options *given) {
    const struct smelt__sparse_scores_spec *scores = spec;
    smelt__sparse_attn_defaults(scores->dqk, scores->topk, given);
}

static void small(const void *spec, struct smelt__problem_options *given) {
    smelt__sparse_attn_small(((const struct smelt__sparse_scores_spec *)spec)->topk, given);
}

static void draw(const void *spec, struct smelt__random *random,
                 struct smelt__problem_options *given) {
    smelt__sparse_attn_draw(((const struct smelt__sparse_scores_spec *)spec)->topk, random, given);
}

static int trial(const void *spec, int number, struct smelt__problem_options *given) {
    return smelt__sparse_attn_trial(((const struct smelt__sparse_scores_spec *)spec)->topk, number,
                                    given);
}

/* ---- the attention --------------------------------------------------------------------------- */

/* A problem of sparse_attn with this one's tensors, extents and options, for those functions of
 * sparse_attn's row that use only inputs. */
struct attention {
    struct smelt__sparse_attn_spec spec;
    smelt_sparse_attn_args args;
    struct smelt__problem problem;
};

static void view_attention(const struct smelt__problem *problem, struct attention *attention) {
    attention->spec = smelt__sparse_scores_attention(problem->spec);
    attention->args = smelt__sparse_scores_attention_args(problem->args);
    attention->problem = *problem;
    attention->problem.spec = &attention->spec;
    attention->problem.args = &attention->args;
}

/* ---- problems -------------------------------------------------------------------------------- */

static int given(const struct smelt__problem *problem, int tensor) {
    struct attention attention;
    view_attention(problem, &attention);
    return smelt__sparse_attn_given(&attention.problem, tensor);
}

static int fill(struct smelt__problem *problem) {
    struct attention attention;
    view_attention(problem, &attention);
    const int failed = smelt__sparse_attn_fill(&attention.problem);
    problem->listed = attention.problem.listed;
    problem->computed = attention.problem.computed;
    problem->valid_slots = attention.problem.valid_slots;
    ((smelt_sparse_scores_args *)problem->args)->query_capacity = attention.args.query_capacity;
    return failed ? -1 : smelt__sparse_attn_fill_results(&attention.problem, -1, TENSOR(LSE));
}

static void footprint(const struct smelt__problem *problem, struct smelt__footprints *footprints) {
    struct attention attention;
    view_attention(problem, &attention);
    smelt__sparse_attn_footprint(&attention.problem, footprints);
}

/* ---- figures --------------------------------------------------------------------------------- */

static double multiplications(const void *spec, const struct smelt__problem_options *options_) {
    const struct smelt__sparse_scores_spec *scores = spec;
    return (double)(options_->batches * options_->tokens * options_->width) * scores->heads *
           scores->dqk;
}

static int rates(const struct smelt__problem *problem,
                 struct smelt__rate found[SMELT__MOST_RATES]) {
    const struct smelt__sparse_scores_spec *spec = problem->spec;
    return smelt__sparse_attn_rates(problem, spec->dqk, spec->heads * spec->dqk, found);
}

/* ---- comparison ------------------------------------------------------------------------------ */

#define TARGET SMELT__OF(TENSOR(TARGET))

static const struct smelt__metric metrics[] = {SMELT__TARGET_METRIC_ROWS(TARGET, "query")};
static const struct smelt__rule rules[] = {SMELT__TARGET_RULE_ROWS(TARGET)};

static void compare_query(const struct smelt__placed *placed, const void *prepared, int64_t query,
                          struct smelt__finding *finding) {
    const struct smelt__problem *problem = placed->problem;
    const int64_t tokens = problem->options.tokens, width = problem->options.width;
    double *const expected = malloc((size_t)width * sizeof *expected), largest = 0;
    (void)prepared;
    if (!expected || smelt__sparse_scores_reference(problem->spec, problem->args, query, expected,
                                                    &largest) != 0) {
        finding->failed = 1;
    } else {
        const int64_t first =
            smelt__problem_at(problem, TENSOR(TARGET), query / tokens, query % tokens, 0);
        smelt__target_compare(
            smelt__compared_row(placed, finding, TENSOR(TARGET), first, width, expected), expected,
            width, largest, finding);
    }
    free(expected);
}

static const struct smelt__comparison comparisons[] = {
    {
        SMELT__UNITS("query", "slot", SMELT__SPARSE_ATTN_B, SMELT__SPARSE_ATTN_T),
        SMELT__METRICS(metrics),
        SMELT__RULES(rules),
        .wanted = smelt__query_is_computed,
        .compare = compare_query,
        .judge = smelt__target_judge,
    },
};

/* ---- the row --------------------------------------------------------------------------------- */

static const struct smelt__harness_key keys[] = {
    SMELT__SPEC_KEY(sparse_scores, heads), SMELT__SPEC_KEY(sparse_scores, dqk),
    SMELT__SPEC_APART(sparse_scores, dv),  SMELT__SPEC_KEY(sparse_scores, topk),
    SMELT__SPEC_KEY(sparse_scores, sink),  {NULL, 0, 0},
};

static const struct smelt__harness_pass passes[] = {
    {SMELT__PASS(FORWARD, "forward", &smelt__sparse_scores_table), .given = given,
     .shape = smelt__sparse_attn_shape_extents, .leaves_free = 1,
     SMELT__PARTLY(SMELT__SPARSE_ATTN_PARTLY)},
};

/* Shapes of cuDNN's sparse attention score recompute, and smaller numbers of heads. */
#define MLA(heads)                                                                                 \
    {                                                                                              \
        .spec = "sparse_scores:heads=" #heads ",dqk=576,dv=512,topk=2048", .tokens = 8192,         \
        .rows = 8192                                                                               \
    }
#define WITH_SINK(heads, topk)                                                                     \
    {                                                                                              \
        .spec = "sparse_scores:heads=" #heads ",dqk=512,dv=512,topk=" #topk ",sink=1",             \
        .tokens = 8192, .rows = 8192                                                               \
    }

static const struct smelt__harness_shape peers[] = {
    MLA(64), MLA(128), MLA(32), MLA(16), MLA(8), WITH_SINK(64, 640), WITH_SINK(128, 1152),
};

const struct smelt__harness_operator smelt__harness_sparse_scores = {
    SMELT__HARNESS_ROW(sparse_scores),
    SMELT__HARNESS_KEYS(sparse_scores),
    .defaults = defaults,
    .small = small,
    .draw = draw,
    .variation = smelt__sparse_attn_variation,
    .trial = trial,
    .bench = {.tokens = 8192, .rows = 8192},
};
