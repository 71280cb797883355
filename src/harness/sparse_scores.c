/* The harness's row of sparse_scores. Its problems are those of the attention whose probabilities
 * it computes. */
#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

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

/* Up to so many multiplications (a second or two on a few processors) lse is the reference's. In
 * larger problems it is invented. */
static const double EXACT_WORK = 4e9;

static int given(const struct smelt__problem *problem, int tensor) {
    struct attention attention;
    view_attention(problem, &attention);
    return smelt__sparse_attn_given(&attention.problem, tensor);
}

struct fill {
    const struct attention *attention;
    int exact;
    _Atomic int failed;
};

static float *lse_of(const struct smelt__problem *problem, int64_t query, int head) {
    const int64_t tokens = problem->options.tokens;
    return (float *)smelt__problem_data(problem, TENSOR(LSE)) +
           smelt__problem_at(problem, TENSOR(LSE), query / tokens, query % tokens, head);
}

/* Computes the forward pass's lse. */
static int compute_lse(const struct attention *attention, int64_t query) {
    double *lse = malloc((size_t)attention->spec.heads * sizeof *lse);
    struct smelt__sparse_attn_results results = {.lse = lse};
    const int failed = !lse || smelt__sparse_attn_reference(&attention->spec, &attention->args,
                                                            &query, 1, &results) != 0;
    for (int head = 0; head < attention->spec.heads && !failed; head++)
        *lse_of(&attention->problem, query, head) = (float)lse[head];
    free(lse);
    return failed;
}

/* Invents an lse close to the real one and not below it. */
static void invent_lse(const struct attention *attention, int64_t query, int64_t valid) {
    const struct smelt__problem *problem = &attention->problem;
    const int64_t tokens = problem->options.tokens;
    for (int head = 0; head < attention->spec.heads; head++) {
        const uint16_t *q = smelt__problem_data(problem, TENSOR(Q));
        q += smelt__problem_at(problem, TENSOR(Q), query / tokens, query % tokens, head);
        *lse_of(problem, query, head) =
            (float)smelt__sparse_attn_estimate_lse(problem, attention->spec.dqk, q, valid);
    }
}

/* Queries that are not computed get NaN, so that its use shows in the results. */
static void fill_lse(void *user, int64_t begin, int64_t end) {
    struct fill *fill = user;
    const struct smelt__problem *problem = &fill->attention->problem;
    for (int64_t query = begin; query < end; query++) {
        const int64_t valid = smelt__problem_valid_slots(problem, query);
        const int computed = !problem->listed || problem->listed[query];
        if (!computed && problem->options.far)
            continue; /* the emulator checks those */
        for (int head = 0; head < fill->attention->spec.heads && (!computed || valid == 0); head++)
            *lse_of(problem, query, head) = computed ? -INFINITY : NAN;
        if (!computed || valid == 0)
            continue;
        if (!fill->exact)
            invent_lse(fill->attention, query, valid);
        else if (compute_lse(fill->attention, query) != 0)
            atomic_store(&fill->failed, 1);
    }
}

static int fill(struct smelt__problem *problem) {
    struct attention attention;
    view_attention(problem, &attention);
    const int failed = smelt__sparse_attn_fill(&attention.problem);
    problem->listed = attention.problem.listed;
    problem->computed = attention.problem.computed;
    problem->valid_slots = attention.problem.valid_slots;
    ((smelt_sparse_scores_args *)problem->args)->query_capacity = attention.args.query_capacity;
    if (failed)
        return -1;
    struct fill fill = {.attention = &attention};
    fill.exact = (double)problem->valid_slots * attention.spec.heads *
                     (attention.spec.dqk + attention.spec.dv) <=
                 EXACT_WORK;
    atomic_init(&fill.failed, 0);
    smelt__parallel_for(problem->options.batches * problem->options.tokens, fill.exact ? 1 : 16,
                        fill_lse, &fill);
    return atomic_load(&fill.failed) ? -1 : 0;
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

enum { RELATIVE, LARGEST_SCORE, METRICS };

#define TARGET SMELT__OF(TENSOR(TARGET))

static const struct smelt__metric metrics[METRICS] = {
    [RELATIVE] = {"relative_error", "target", "target, relative",
                  "error of a slot, relative to the query's sum,", SMELT__LARGEST, TARGET},
    [LARGEST_SCORE] = {"", "largest_score", NULL, "score", SMELT__LARGEST, 0},
};

enum { NUMBER, MASKED_SLOT, RULES };

static const struct smelt__rule rules[RULES] = {
    [NUMBER] = {"number", TARGET, "a slot's target is NaN, infinite, negative or not written"},
    [MASKED_SLOT] = {"masked_slot", TARGET, "the target of a masked slot is not 0"},
};

static int is_computed(const struct smelt__problem *problem, int64_t query) {
    return !problem->listed || problem->listed[query];
}

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
        smelt__finding_enlarge(finding, LARGEST_SCORE, largest, 0);
        smelt__target_compare(
            smelt__compared_row(placed, finding, TENSOR(TARGET), first, width, expected), expected,
            width, NUMBER, MASKED_SLOT, RELATIVE, finding);
    }
    free(expected);
}

static void judge(const struct smelt__problem *problem, int64_t compared,
                  struct smelt__metric_result *results) {
    (void)problem;
    (void)compared;
    results[RELATIVE].bar = smelt__target_bar(results[LARGEST_SCORE].value);
    results[LARGEST_SCORE].bar = -1;
}

static const struct smelt__comparison comparisons[] = {
    {
        SMELT__UNITS("query", "slot", SMELT__SPARSE_ATTN_B, SMELT__SPARSE_ATTN_T),
        SMELT__METRICS(metrics),
        SMELT__RULES(rules),
        .wanted = is_computed,
        .compare = compare_query,
        .judge = judge,
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
