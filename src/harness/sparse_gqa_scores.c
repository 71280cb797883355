/* The harness's row of sparse_gqa_scores. Its problems are those of the attention whose probabilities it
 * computes. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "harness/parallel.h"
#include "harness/sparse_attn.h"
#include "harness/sparse_gqa.h"
#include "harness/target.h"

#define TENSOR(name) SMELT__SPARSE_GQA_##name
#define LSE SMELT__SPARSE_GQA_SCORES_LSE
#define TARGET SMELT__SPARSE_GQA_SCORES_TARGET

static const char *const options[] = {"width", "valid", "documents",   "lists", "query-list",
                                      "scale", "spiky", "topk-length", NULL};

/* ---- the attention --------------------------------------------------------------------------- */

/* A problem with the attention's keys and arguments, for those functions of sparse_gqa's row that use
 * only inputs. */
struct attention {
    struct smelt__sparse_gqa_spec spec;
    smelt_sparse_gqa_args args; /* with all strides */
    struct smelt__problem problem;
};

static void view_attention(const struct smelt__problem *problem, struct attention *attention) {
    smelt_sparse_gqa_scores_args args;
    smelt__problem_arguments(problem, &args);
    attention->spec = smelt__sparse_gqa_scores_attention(problem->spec);
    attention->args = smelt__sparse_gqa_scores_attention_args(&args);
    attention->problem = *problem;
    attention->problem.spec = &attention->spec;
    attention->problem.args = &attention->args;
}

static void defaults(const void *spec, struct smelt__problem_options *of) {
    const struct smelt__sparse_gqa_spec attention = smelt__sparse_gqa_scores_attention(spec);
    smelt__sparse_gqa_defaults(&attention, of);
}

static void small(const void *spec, struct smelt__problem_options *of) {
    const struct smelt__sparse_gqa_spec attention = smelt__sparse_gqa_scores_attention(spec);
    smelt__sparse_gqa_small(&attention, of);
}

static void draw(const void *spec, struct smelt__random *random,
                 struct smelt__problem_options *of) {
    const struct smelt__sparse_gqa_spec attention = smelt__sparse_gqa_scores_attention(spec);
    smelt__sparse_gqa_draw(&attention, random, of);
}

static int trial(const void *spec, int number, struct smelt__problem_options *of) {
    const struct smelt__sparse_gqa_spec attention = smelt__sparse_gqa_scores_attention(spec);
    return smelt__sparse_gqa_trial(&attention, number, of);
}

/* ---- problems -------------------------------------------------------------------------------- */

static int given(const struct smelt__problem *problem, int tensor) {
    struct attention attention;
    view_attention(problem, &attention);
    return smelt__sparse_gqa_given(&attention.problem, tensor);
}

static int fill(struct smelt__problem *problem) {
    struct attention attention;
    view_attention(problem, &attention);
    const int failed = smelt__sparse_gqa_fill(&attention.problem);
    problem->listed = attention.problem.listed;
    problem->computed = attention.problem.computed;
    problem->valid_slots = attention.problem.valid_slots;
    ((smelt_sparse_gqa_scores_args *)problem->args)->query_capacity = attention.args.query_capacity;
    return failed ? -1 : smelt__sparse_gqa_fill_results(&attention.problem, -1, LSE);
}

static void footprint(const struct smelt__problem *problem, struct smelt__footprints *footprints) {
    struct attention attention;
    view_attention(problem, &attention);
    smelt__sparse_gqa_footprint(&attention.problem, footprints);
}

/* ---- figures --------------------------------------------------------------------------------- */

static double multiplications(const void *spec, const struct smelt__problem_options *of) {
    const struct smelt__sparse_gqa_scores_spec *const scores = spec;
    return (double)(of->batches * of->tokens * of->width) * scores->granularity * scores->heads *
           scores->dqk;
}

static int rates(const struct smelt__problem *problem,
                 struct smelt__rate found[SMELT__MOST_RATES]) {
    struct attention attention;
    view_attention(problem, &attention);
    return smelt__sparse_gqa_rates(&attention.problem, attention.spec.dqk, found);
}

/* ---- comparison ------------------------------------------------------------------------------ */

static const struct smelt__metric metrics[] = {
    SMELT__TARGET_METRIC_ROWS(SMELT__OF(TARGET), "list")};
static const struct smelt__rule rules[] = {SMELT__TARGET_RULE_ROWS(SMELT__OF(TARGET))};

static int64_t lists_of(const struct smelt__problem *problem) {
    const struct smelt__sparse_gqa_scores_spec *const spec = problem->spec;
    return spec->lists == SMELT__LISTS_OF_KV_HEADS ? spec->kv_heads : 1;
}

/* Units are lists. */
static int64_t count_lists(const struct smelt__problem *problem) {
    return problem->options.batches * problem->options.tokens * lists_of(problem);
}

static int is_computed(const struct smelt__problem *problem, int64_t unit) {
    return smelt__query_is_computed(problem, unit / lists_of(problem));
}

static void compare_list(const struct smelt__placed *placed, const void *prepared, int64_t unit,
                         struct smelt__finding *finding) {
    const struct smelt__problem *const problem = placed->problem;
    const int64_t tokens = problem->options.tokens, width = problem->options.width;
    const int64_t query = unit / lists_of(problem), list = unit % lists_of(problem);
    double *const expected = malloc((size_t)width * sizeof *expected), largest = 0;
    smelt_sparse_gqa_scores_args args;
    (void)prepared;
    smelt__problem_arguments(problem, &args);
    if (!expected || smelt__sparse_gqa_scores_reference(problem->spec, &args, query, list, expected,
                                                        &largest) != 0) {
        finding->failed = 1;
    } else {
        const int64_t first =
            smelt__problem_at(problem, TARGET, query / tokens, query % tokens, list);
        smelt__target_compare(smelt__compared_row(placed, finding, TARGET, first, width, expected),
                              expected, width, largest, finding);
    }
    free(expected);
}

static const struct smelt__comparison comparisons[] = {
    {
        .unit = "list",
        .part = "slot",
        .count = count_lists,
        SMELT__METRICS(metrics),
        SMELT__RULES(rules),
        .wanted = is_computed,
        .compare = compare_list,
        .judge = smelt__target_judge,
    },
};

/* ---- the row --------------------------------------------------------------------------------- */

static const struct smelt__harness_key keys[] = {
    SMELT__SPEC_KEY(sparse_gqa_scores, heads),       SMELT__SPEC_KEY(sparse_gqa_scores, kv_heads),
    SMELT__SPEC_KEY(sparse_gqa_scores, dqk),         SMELT__SPEC_KEY(sparse_gqa_scores, topk),
    SMELT__SPEC_KEY(sparse_gqa_scores, granularity), SMELT__SPEC_KEY(sparse_gqa_scores, lists),
    SMELT__SPEC_KEY(sparse_gqa_scores, sink),        {NULL, 0, 0},
};

static int table_of(const void *spec) {
    return ((const struct smelt__sparse_gqa_scores_spec *)spec)->lists;
}

#define PASS(lists)                                                                                \
    {                                                                                              \
        SMELT__PASS(FORWARD, "forward", &smelt__sparse_gqa_scores_table[lists]),                   \
            .table = (lists), .shape = smelt__sparse_gqa_shape, .given = given, .leaves_free = 1,  \
            SMELT__PARTLY(SMELT__SPARSE_GQA_PARTLY(0))                                             \
    }
static const struct smelt__harness_pass passes[] = {PASS(SMELT__LISTS_SHARED),
                                                    PASS(SMELT__LISTS_OF_KV_HEADS)};

/* MiniMax-M3's and Qwen3.8-Flash-Next's. */
static const struct smelt__harness_shape peers[] = {
    {.spec = "sparse_gqa_scores:heads=64,kv_heads=4,dqk=128,topk=16,granularity=128,lists=kv",
     .tokens = 8192,
     .rows = 8192},
    {.spec = "sparse_gqa_scores:heads=24,kv_heads=2,dqk=256,topk=512,granularity=4",
     .tokens = 8192,
     .rows = 8192},
};

const struct smelt__harness_operator smelt__harness_sparse_gqa_scores = {
    SMELT__HARNESS_ROW(sparse_gqa_scores),
    SMELT__HARNESS_KEYS(sparse_gqa_scores),
    .table_of = table_of,
    .own_options = smelt__sparse_gqa_options,
    .own_option_count = 1,
    .defaults = defaults,
    .small = small,
    .draw = draw,
    .variation = smelt__sparse_gqa_variation,
    .trial = trial,
    .bench = {.tokens = 8192, .rows = 8192},
};
