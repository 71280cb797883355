/* The operator sparse_gqa in the harness: its problems, and its forward pass. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "harness/normal.h"
#include "harness/parallel.h"
#include "harness/random.h"
#include "harness/sparse_attn.h"
#include "harness/sparse_gqa.h"

#define TENSOR(name) SMELT__SPARSE_GQA_##name

/* ---- options --------------------------------------------------------------------------------- */

static const char *const options[] = {"width", "valid", "documents",   "lists", "query-list",
                                      "scale", "spiky", "topk-length", "dkv",   NULL};

static const char *const limits_names[] = {"none", "causal", "odd", NULL};
const struct smelt__option smelt__sparse_gqa_options[] = {
    {"limits", SMELT__OPTION_CHOICE, offsetof(struct smelt__problem_options, own[SMELT__LIMITS]), 0,
     SMELT__LIMITS_KINDS - 1, limits_names,
     "the rows that a query may read: all, those up to its own, any", SMELT__OPTION_INPUTS},
};

void smelt__sparse_gqa_defaults(const void *spec, struct smelt__problem_options *given) {
    enum { FEWEST = 256, MOST = 1 << 16 };
    const struct smelt__sparse_gqa_spec *gqa = spec;
    const int64_t rows = 4 * (int64_t)gqa->topk * gqa->granularity;
    if (given->rows == 0)
        given->rows = rows < FEWEST ? FEWEST : smelt__least(rows, MOST);
    if (given->width == 0)
        given->width = gqa->topk;
    if (given->scale == 0.0F)
        given->scale = (float)(1.0 / sqrt(gqa->dqk));
}

/* Several key blocks, the last of them not whole; a table that ends within an entry. */
void smelt__sparse_gqa_small(const void *spec, struct smelt__problem_options *given) {
    enum { TOKENS = 3, PATTERNS = 10, ROWS = 200, ENTRIES = 3, ODD = 3 };
    const struct smelt__sparse_gqa_spec *gqa = spec;
    if (given->tokens == 0) /* each pattern of adversarial lists */
        given->tokens = given->lists == SMELT__LISTS_ADVERSARIAL ? PATTERNS : TOKENS;
    if (given->width == 0)
        given->width = smelt__least(gqa->topk, ROWS / gqa->granularity + ENTRIES);
    if (given->rows == 0)
        given->rows = 2 * given->width * gqa->granularity + ODD;
}

static int one_in(struct smelt__random *random, int count) {
    return smelt__random_below(random, count) == 0;
}

void smelt__sparse_gqa_draw(const void *spec, struct smelt__random *random,
                            struct smelt__problem_options *given) {
    enum { WIDEST = 330, MOST_ROWS = 700 };
    const struct smelt__sparse_gqa_spec *gqa = spec;
    given->rows = 1 + smelt__random_below(random, MOST_ROWS) + (given->far ? 2 : 0);
    given->width =
        1 + smelt__random_below(random, smelt__least(gqa->topk, WIDEST / gqa->granularity + 1));
    given->lists = (enum smelt__lists)smelt__random_below(random, SMELT__LISTS_KINDS);
    given->query_list = (enum smelt__query_list)smelt__random_below(random, 5);
    given->spiky = one_in(random, 3);
    given->topk_length = one_in(random, 3);
    given->own[SMELT__LIMITS] = smelt__random_below(random, SMELT__LIMITS_KINDS);
    given->dkv = (enum smelt__dkv)smelt__random_below(random, 3);
}

int smelt__sparse_gqa_variation(int number, struct smelt__problem_options *given) {
    static const struct {
        enum smelt__lists lists;
        int limits, topk_length;
    } tried[] = {{SMELT__LISTS_RANDOM, SMELT__LIMITS_NONE, 0},
                 {SMELT__LISTS_CAUSAL, SMELT__LIMITS_CAUSAL, 0},
                 {SMELT__LISTS_WINDOW, SMELT__LIMITS_ODD, 0},
                 {SMELT__LISTS_ADVERSARIAL, SMELT__LIMITS_NONE, 0},
                 {SMELT__LISTS_CAUSAL, SMELT__LIMITS_CAUSAL, 1},
                 {SMELT__LISTS_ADVERSARIAL, SMELT__LIMITS_ODD, 1}};
    enum { COUNT = sizeof tried / sizeof tried[0] };
    if (number >= COUNT)
        return 0;
    given->lists = tried[number].lists;
    given->own[SMELT__LIMITS] = tried[number].limits;
    given->topk_length = tried[number].topk_length;
    given->dkv = number < 4 ? SMELT__DKV_BF16 : number == 4 ? SMELT__DKV_ADD : SMELT__DKV_FP32;
    return 1;
}

/* Full lists, then damaged ones: more key blocks than stages, the last not whole. */
int smelt__sparse_gqa_trial(const void *spec, int number, struct smelt__problem_options *given) {
    enum { TOKENS = 6, ROWS = 700 };
    const struct smelt__sparse_gqa_spec *gqa = spec;
    if (!smelt__sparse_gqa_variation(number == 1 ? 5 : number, given) || number > 1)
        return 0;
    given->tokens = TOKENS;
    given->width = smelt__least(gqa->topk, ROWS / gqa->granularity + 1);
    given->rows = 2 * given->width * gqa->granularity + 1;
    return 1;
}

static int given_grad(const struct smelt__problem *problem, int tensor) {
    const struct smelt__key_rows dk = smelt__sparse_gqa_dk(problem);
    const struct smelt__key_rows dv = smelt__sparse_gqa_dv(problem);
    if (tensor < SMELT__SPARSE_GQA_GRAD_OUT)
        return smelt__sparse_gqa_given(problem, tensor);
    if (tensor == SMELT__SPARSE_GQA_GRAD_DSINK)
        return ((const struct smelt__sparse_gqa_spec *)problem->spec)->sink;
    return smelt__key_rows_given(problem, &dk, tensor) ||
           smelt__key_rows_given(problem, &dv, tensor);
}

/* dq and dsink have; dk and dv are summed in any order unless the operator is deterministic. */
static int reproducible_grad(const struct smelt__problem *problem, int tensor) {
    const struct smelt__sparse_gqa_spec *spec = problem->spec;
    return spec->deterministic || tensor == SMELT__SPARSE_GQA_GRAD_DQ ||
           tensor == SMELT__SPARSE_GQA_GRAD_DSINK;
}

/* ---- figures --------------------------------------------------------------------------------- */

static double multiplications(const void *spec, const struct smelt__problem_options *of) {
    const struct smelt__sparse_gqa_spec *gqa = spec;
    return (double)(of->batches * of->tokens * of->width) * gqa->granularity * gqa->heads *
           (gqa->dqk + gqa->dv);
}

/* Measured on one H200: a large bf16 matrix product under sustained load; gathering rows that stay in
 * the L2 cache. */
static const double TFLOPS_CEILING = 690, GATHER_TBS = 9.4;

/* Arithmetic: two products of each row with each head of its group. Gather: a query's rows once for
 * each KV head, though queries that share a tile may gather one for all. */
int smelt__sparse_gqa_rates(const struct smelt__problem *problem, int columns,
                            struct smelt__rate found[SMELT__MOST_RATES]) {
    const struct smelt__sparse_gqa_spec *spec = problem->spec;
    const double all = (double)problem->valid_slots * columns;
    found[0] = SMELT__TFLOPS(2 * all * (spec->heads / spec->kv_heads) / 1e12, TFLOPS_CEILING);
    found[1] = SMELT__TBS("gather", 2, all * 2 / 1e12, GATHER_TBS);
    return 2;
}

static int rates(const struct smelt__problem *problem,
                 struct smelt__rate found[SMELT__MOST_RATES]) {
    const struct smelt__sparse_gqa_spec *spec = problem->spec;
    return smelt__sparse_gqa_rates(problem, spec->dqk + spec->dv, found);
}

/* Of the scores, dp, dq, dk and dv; and what goes over all of dk and dv. */
static double multiplications_grad(const void *spec, const struct smelt__problem_options *of) {
    const struct smelt__sparse_gqa_spec *gqa = spec;
    return (double)(of->batches * of->tokens * of->width) * gqa->granularity * gqa->heads *
               (3 * gqa->dqk + 2 * gqa->dv) +
           (double)(of->batches * of->rows) * gqa->kv_heads * (gqa->dqk + gqa->dv);
}

/* Arithmetic: five products. */
static int rates_grad(const struct smelt__problem *problem,
                      struct smelt__rate found[SMELT__MOST_RATES]) {
    const struct smelt__sparse_gqa_spec *spec = problem->spec;
    const double columns = (double)problem->valid_slots * (3 * spec->dqk + 2 * spec->dv);
    found[0] = SMELT__TFLOPS(2 * columns * (spec->heads / spec->kv_heads) / 1e12, TFLOPS_CEILING);
    return 1;
}

/* ---- comparison ------------------------------------------------------------------------------ */

#define OUT SMELT__OF(TENSOR(OUT))

static const struct smelt__metric metrics[SMELT__OUT_METRICS] = {
    SMELT__OUT_METRIC_ROWS(OUT, SMELT__OF(TENSOR(LSE)))};

static const struct smelt__rule rules[SMELT__OUT_RULES] = {SMELT__OUT_RULE_ROWS(OUT, "row")};

static void compare_heads(const struct smelt__placed *placed, int64_t query,
                          const struct smelt__sparse_gqa_results *expected,
                          struct smelt__finding *finding) {
    const struct smelt__problem *const problem = placed->problem;
    const struct smelt__sparse_gqa_spec *const spec = problem->spec;
    smelt__finding_enlarge(finding, SMELT__OUT_SCORE, *expected->max_abs, 0);
    for (int head = 0; head < spec->heads && !finding->broken; head++) {
        const int64_t number = query * spec->heads + head;
        const struct smelt__expected_out row = {.out = expected->out + (int64_t)head * spec->dv,
                                                .terms = expected->terms + (int64_t)head * spec->dv,
                                                .dv = spec->dv,
                                                .empty = isinf(expected->lse[head])};
        smelt__out_compare(smelt__compared_row(placed, finding, TENSOR(OUT),
                                               smelt__problem_row(problem, TENSOR(OUT), number),
                                               spec->dv, row.out),
                           &row, head, finding);
        smelt__out_number(placed, TENSOR(LSE), SMELT__OUT_LSE, number, head, expected->lse[head],
                          finding);
    }
}

static void compare_query(const struct smelt__placed *placed, const void *prepared, int64_t query,
                          struct smelt__finding *finding) {
    const struct smelt__sparse_gqa_spec *const spec = placed->problem->spec;
    const smelt_sparse_gqa_args inputs = smelt__sparse_gqa_inputs(placed->problem);
    const size_t heads = (size_t)spec->heads, dv = (size_t)spec->dv;
    double max_abs = 0, *const memory = malloc(heads * (2 * dv + 1) * sizeof *memory);
    const struct smelt__sparse_gqa_results expected = {memory, memory + heads * dv,
                                                       memory + 2 * heads * dv, &max_abs};
    (void)prepared;
    finding->failed = !memory || smelt__sparse_gqa_reference(spec, &inputs, query, &expected) != 0;
    if (!finding->failed)
        compare_heads(placed, query, &expected, finding);
    free(memory);
}

static void judge(const struct smelt__problem *problem, int64_t compared,
                  struct smelt__metric_result *results) {
    const struct smelt__sparse_gqa_spec *const spec = problem->spec;
    smelt__out_judge(problem, spec->dqk, compared * spec->heads, results);
}

static const struct smelt__comparison comparisons[] = {
    {
        SMELT__UNITS("query", "head", TENSOR(B), TENSOR(T)),
        SMELT__METRICS(metrics),
        SMELT__RULES(rules),

        .wanted = smelt__query_is_computed,
        .compare = compare_query,
        .judge = judge,
    },
};

/* ---- the row --------------------------------------------------------------------------------- */

static const struct smelt__harness_key keys[] = {
    SMELT__SPEC_KEY(sparse_gqa, heads),
    SMELT__SPEC_KEY(sparse_gqa, kv_heads),
    SMELT__SPEC_KEY(sparse_gqa, dqk),
    SMELT__SPEC_KEY(sparse_gqa, dv),
    SMELT__SPEC_KEY(sparse_gqa, topk),
    SMELT__SPEC_KEY(sparse_gqa, granularity),
    SMELT__SPEC_KEY(sparse_gqa, lists),
    SMELT__SPEC_KEY(sparse_gqa, sink),
    SMELT__SPEC_APART(sparse_gqa, deterministic),
    SMELT__SPEC_APART(sparse_gqa, unite),
    {NULL, 0, 0},
};

static int table_of(const void *spec) {
    return ((const struct smelt__sparse_gqa_spec *)spec)->lists;
}

#define PARTLY SMELT__SPARSE_GQA_PARTLY(SMELT__OF(TENSOR(V)))
#define FORWARD(lists)                                                                             \
    {                                                                                              \
        .pass = SMELT_PASS_FORWARD, .name = "forward", .tensors = &smelt__sparse_gqa_table[lists], \
        .table = (lists), .shape = smelt__sparse_gqa_shape, .given = smelt__sparse_gqa_given,      \
        .fill = smelt__sparse_gqa_fill, .partly = PARTLY,                                          \
        .footprint = smelt__sparse_gqa_footprint, .leaves_free = 1,                                \
        .multiplications = multiplications, .comparisons = comparisons, .comparison_count = 1,     \
        .rates = rates                                                                             \
    }
#define BACKWARD(lists)                                                                            \
    {                                                                                              \
        .pass = SMELT_PASS_BACKWARD, .name = "backward",                                           \
        .tensors = &smelt__sparse_gqa_grad_table[lists], .table = (lists),                         \
        .shape = smelt__sparse_gqa_shape, .given = given_grad,                                     \
        .fill = smelt__sparse_gqa_grad_fill, .partly = PARTLY,                                     \
        .footprint = smelt__sparse_gqa_footprint, .reproducible = reproducible_grad,               \
        .leaves_free = 1, .multiplications = multiplications_grad,                                 \
        .comparisons = smelt__sparse_gqa_grad_comparisons,                                         \
        .comparison_count = SMELT__SPARSE_GQA_GRAD_COMPARISONS, .rates = rates_grad                \
    }

static const struct smelt__harness_pass passes[] = {
    FORWARD(SMELT__LISTS_SHARED),
    FORWARD(SMELT__LISTS_OF_KV_HEADS),
    BACKWARD(SMELT__LISTS_SHARED),
    BACKWARD(SMELT__LISTS_OF_KV_HEADS),
};

/* MiniMax-M3's attention, Qwen3.8-Flash-Next's, and one like NSA's. */
#define MSA "sparse_gqa:heads=64,kv_heads=4,dqk=128,dv=128,topk=16,granularity=128,lists=kv"
#define QSA "sparse_gqa:heads=24,kv_heads=2,dqk=256,dv=256,topk=512,granularity=4"
#define NSA "sparse_gqa:heads=64,kv_heads=4,dqk=192,dv=128,topk=16,granularity=64,lists=kv"
#define GRAD ",passes=backward"
#define UNITED ",unite=1"
#define AT(spec_, T) .spec = spec_, .tokens = T, .rows = T
#define DRIFT .lists = SMELT__LISTS_DRIFT

static const struct smelt__harness_shape peers[] = {
    {AT(MSA, 8192)},
    {AT(MSA, 65536)},
    {AT(MSA, 8192), DRIFT},
    {AT(MSA UNITED, 8192), DRIFT},
    {AT(QSA, 8192)},
    {AT(QSA, 8192), DRIFT},
    {AT(QSA UNITED, 8192), DRIFT},
    {AT(NSA, 8192)},
    {AT(NSA, 8192), DRIFT},
    {AT(NSA UNITED, 8192), DRIFT},
    {AT(MSA GRAD, 8192)},
    {AT(QSA GRAD, 8192)},
    {AT(NSA GRAD, 8192)},
    {AT(MSA GRAD ",deterministic=1", 8192)},
};

const struct smelt__harness_operator smelt__harness_sparse_gqa = {
    SMELT__HARNESS_ROW(sparse_gqa),
    SMELT__HARNESS_KEYS(sparse_gqa),
    .table_of = table_of,
    .own_options = smelt__sparse_gqa_options,
    .own_option_count = 1,
    .defaults = smelt__sparse_gqa_defaults,
    .small = smelt__sparse_gqa_small,
    .draw = smelt__sparse_gqa_draw,
    .variation = smelt__sparse_gqa_variation,
    .trial = smelt__sparse_gqa_trial,
    .bench = {.tokens = 8192, .rows = 8192},
};
