/* The operator sparse_gqa in the harness: its problems, and its forward pass. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "harness/normal.h"
#include "harness/parallel.h"
#include "harness/random.h"
#include "harness/sparse_attn.h"
#include "ops/sparse_gqa_table.h"

#define TENSOR(name) SMELT__SPARSE_GQA_##name

enum { STREAM_Q = 1, STREAM_K, STREAM_V, STREAM_LIMITS };

/* ---- options --------------------------------------------------------------------------------- */

static const char *const options[] = {"width", "valid", "documents",   "lists", "query-list",
                                      "scale", "spiky", "topk-length", NULL};

enum { LIMITS }; /* own options by number */
enum { LIMITS_NONE, LIMITS_CAUSAL, LIMITS_ODD, LIMITS_KINDS };
static const char *const limits_names[] = {"none", "causal", "odd", NULL};
static const struct smelt__option own_options[] = {
    {"limits", SMELT__OPTION_CHOICE, offsetof(struct smelt__problem_options, own[LIMITS]), 0,
     LIMITS_KINDS - 1, limits_names,
     "the rows that a query may read: all, those up to its own, any", SMELT__OPTION_INPUTS},
};

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static void defaults(const void *spec, struct smelt__problem_options *given) {
    enum { FEWEST = 256, MOST = 1 << 16 };
    const struct smelt__sparse_gqa_spec *gqa = spec;
    const int64_t rows = 4 * (int64_t)gqa->topk * gqa->granularity;
    if (given->rows == 0)
        given->rows = rows < FEWEST ? FEWEST : least(rows, MOST);
    if (given->width == 0)
        given->width = gqa->topk;
    if (given->scale == 0.0F)
        given->scale = (float)(1.0 / sqrt(gqa->dqk));
}

/* Several key blocks, the last of them not whole; a table that ends within an entry. */
static void small(const void *spec, struct smelt__problem_options *given) {
    enum { TOKENS = 3, PATTERNS = 10, ROWS = 200, ENTRIES = 3, ODD = 3 };
    const struct smelt__sparse_gqa_spec *gqa = spec;
    if (given->tokens == 0) /* each pattern of adversarial lists */
        given->tokens = given->lists == SMELT__LISTS_ADVERSARIAL ? PATTERNS : TOKENS;
    if (given->width == 0)
        given->width = least(gqa->topk, ROWS / gqa->granularity + ENTRIES);
    if (given->rows == 0)
        given->rows = 2 * given->width * gqa->granularity + ODD;
}

static int one_in(struct smelt__random *random, int count) {
    return smelt__random_below(random, count) == 0;
}

static void draw(const void *spec, struct smelt__random *random,
                 struct smelt__problem_options *given) {
    enum { WIDEST = 330, MOST_ROWS = 700 };
    const struct smelt__sparse_gqa_spec *gqa = spec;
    given->rows = 1 + smelt__random_below(random, MOST_ROWS) + (given->far ? 2 : 0);
    given->width = 1 + smelt__random_below(random, least(gqa->topk, WIDEST / gqa->granularity + 1));
    given->lists = (enum smelt__lists)smelt__random_below(random, SMELT__LISTS_KINDS);
    given->query_list = (enum smelt__query_list)smelt__random_below(random, 5);
    given->spiky = one_in(random, 3);
    given->topk_length = one_in(random, 3);
    given->own[LIMITS] = smelt__random_below(random, LIMITS_KINDS);
}

static int variation(int number, struct smelt__problem_options *given) {
    static const struct {
        enum smelt__lists lists;
        int limits, topk_length;
    } tried[] = {
        {SMELT__LISTS_RANDOM, LIMITS_NONE, 0},   {SMELT__LISTS_CAUSAL, LIMITS_CAUSAL, 0},
        {SMELT__LISTS_WINDOW, LIMITS_ODD, 0},    {SMELT__LISTS_ADVERSARIAL, LIMITS_NONE, 0},
        {SMELT__LISTS_CAUSAL, LIMITS_CAUSAL, 1}, {SMELT__LISTS_ADVERSARIAL, LIMITS_ODD, 1}};
    enum { COUNT = sizeof tried / sizeof tried[0] };
    if (number >= COUNT)
        return 0;
    given->lists = tried[number].lists;
    given->own[LIMITS] = tried[number].limits;
    given->topk_length = tried[number].topk_length;
    return 1;
}

/* Full lists, then damaged ones: more key blocks than stages, the last not whole. */
static int trial(const void *spec, int number, struct smelt__problem_options *given) {
    enum { TOKENS = 6, ROWS = 700 };
    const struct smelt__sparse_gqa_spec *gqa = spec;
    if (!variation(number == 1 ? 5 : number, given) || number > 1)
        return 0;
    given->tokens = TOKENS;
    given->width = least(gqa->topk, ROWS / gqa->granularity + 1);
    given->rows = 2 * given->width * gqa->granularity + 1;
    return 1;
}

/* ---- shape ----------------------------------------------------------------------------------- */

static void shape(struct smelt__problem *problem) {
    problem->extents[TENSOR(LISTED)] = smelt__query_list_room(&problem->options);
}

static int given(const struct smelt__problem *problem, int tensor) {
    const struct smelt__sparse_gqa_spec *spec = problem->spec;
    switch (tensor) {
    case TENSOR(TOPK_LENGTH):
        return problem->options.topk_length;
    case TENSOR(LIMIT):
        return problem->options.own[LIMITS] != LIMITS_NONE;
    case TENSOR(SINK):
        return spec->sink;
    case TENSOR(QUERIES):
        return problem->options.query_list != SMELT__QUERY_LIST_NONE;
    case TENSOR(QUERY_COUNT):
        return smelt__query_list_counted(&problem->options);
    default:
        return 1;
    }
}

/* The forward call of a problem's inputs, with all strides. */
static smelt_sparse_gqa_args inputs_of(const struct smelt__problem *problem) {
    smelt_sparse_gqa_args inputs;
    smelt__problem_arguments(problem, &inputs);
    return inputs;
}

static int64_t entries_of(const struct smelt__problem *problem) {
    const struct smelt__sparse_gqa_spec *spec = problem->spec;
    return (problem->options.rows + spec->granularity - 1) / spec->granularity;
}

static int is_computed(const struct smelt__problem *problem, int64_t query) {
    return !problem->listed || problem->listed[query];
}

/* ---- tensors --------------------------------------------------------------------------------- */

struct fill {
    struct smelt__problem *problem;
    const struct smelt__sparse_gqa_spec *spec;
    smelt_sparse_gqa_args inputs;
    const struct smelt__normals *normals;
    int64_t lists, entries;
    _Atomic int32_t *reach; /* [B, lists, entries] rows of the entry that some query reads */
    _Atomic int64_t valid_rows, computed;
};

static uint16_t *row_at(const struct fill *fill, int tensor, int64_t b, int64_t row, int64_t head) {
    return (uint16_t *)smelt__problem_data(fill->problem, tensor) +
           smelt__problem_at(fill->problem, tensor, b, row, head);
}

/* Lists of blocks are lists of rows in a smaller table; those of a query are drawn apart. */
static void fill_lists(const struct fill *fill, int64_t query) {
    const int64_t tokens = fill->problem->options.tokens, b = query / tokens, t = query % tokens;
    int32_t *const indices = smelt__problem_data(fill->problem, TENSOR(INDICES));
    int32_t *const lengths = smelt__problem_data(fill->problem, TENSOR(TOPK_LENGTH));
    for (int64_t list = 0; list < fill->lists; list++) {
        struct smelt__problem_options of = fill->problem->options;
        of.rows = fill->entries;
        of.seed += 1000003 * (uint64_t)list;
        const int64_t count = smelt__lists_make(
            &of, query, indices + smelt__problem_at(fill->problem, TENSOR(INDICES), b, t, list));
        if (lengths)
            lengths[smelt__problem_at(fill->problem, TENSOR(TOPK_LENGTH), b, t, list)] =
                smelt__lists_counted(&of) ? (int32_t)count : smelt__lists_length(&of, query);
    }
}

/* Causal: rows up to the query's own. Odd: anything, within an entry as a rule, also beyond the ends.
 */
static void fill_limit(const struct fill *fill, int64_t query) {
    const struct smelt__problem_options *const of = &fill->problem->options;
    const int64_t b = query / of->tokens, t = query % of->tokens;
    int32_t *const limits = smelt__problem_data(fill->problem, TENSOR(LIMIT));
    struct smelt__random random = smelt__random_at(of->seed, STREAM_LIMITS, (uint64_t)query);
    if (!limits)
        return;
    const int64_t odd[] = {-1, INT32_MAX, INT32_MIN, 1};
    const int64_t kind = smelt__random_below(&random, 12);
    limits[smelt__problem_at(fill->problem, TENSOR(LIMIT), b, t, 0)] =
        (int32_t)(of->own[LIMITS] == LIMITS_CAUSAL ? t * of->rows / of->tokens + 1
                  : kind < 4                       ? odd[kind]
                  : kind < 8 ? of->rows - smelt__random_below(&random, of->rows / 2 + 1)
                             : smelt__random_below(&random, of->rows + 1));
}

static void fill_queries(void *user, int64_t begin, int64_t end) {
    const struct fill *fill = user;
    const struct smelt__problem_options *const of = &fill->problem->options;
    const int heads = fill->spec->heads, dqk = fill->spec->dqk;
    for (int64_t query = begin; query < end; query++) {
        for (int head = 0; head < heads; head++) {
            const uint64_t row = (uint64_t)query * (uint64_t)heads + (uint64_t)head;
            uint16_t *const q =
                row_at(fill, TENSOR(Q), query / of->tokens, query % of->tokens, head);
            smelt__normals_row(fill->normals, of->seed, STREAM_Q, row, q, dqk);
            if (of->spiky)
                smelt__spiky_query(of, heads, dqk, row, q);
        }
        fill_lists(fill, query);
        fill_limit(fill, query);
    }
}

static void enlarge(_Atomic int32_t *to, int32_t value) {
    int32_t before = atomic_load_explicit(to, memory_order_relaxed);
    while (before < value && !atomic_compare_exchange_weak(to, &before, value))
        ;
}

/* Which rows the computed queries read, and how many. */
static void mark_rows(void *user, int64_t begin, int64_t end) {
    struct fill *const fill = user;
    const int64_t r = fill->spec->granularity;
    for (int64_t query = begin; query < end; query++) {
        const int times = fill->problem->listed ? fill->problem->listed[query] : 1;
        const int64_t limit = smelt__sparse_gqa_limit(&fill->inputs, query);
        for (int64_t list = 0; times > 0 && list < fill->lists; list++) {
            const int32_t *const row = smelt__sparse_gqa_list(&fill->inputs, query, list);
            const int64_t slots = smelt__sparse_gqa_slots(&fill->inputs, query, list);
            int64_t valid = 0;
            for (int64_t i = 0; i < slots; i++) {
                const int64_t reached = row[i] < 0 ? 0 : least(limit - row[i] * r, r);
                if (reached <= 0)
                    continue;
                valid += reached;
                enlarge(&fill->reach[(query / fill->inputs.tokens * fill->lists + list) *
                                         fill->entries +
                                     row[i]],
                        (int32_t)reached);
            }
            atomic_fetch_add(&fill->valid_rows,
                             times * valid * (fill->spec->kv_heads / fill->lists));
        }
        atomic_fetch_add(&fill->computed, times);
    }
}

/* Rows that no query reads hold NaN. */
static void fill_rows(void *user, int64_t begin, int64_t end) {
    const struct fill *const fill = user;
    const struct smelt__sparse_gqa_spec *const spec = fill->spec;
    const int64_t rows = fill->problem->options.rows;
    for (int64_t at = begin; at < end; at++) {
        const int64_t head = at % spec->kv_heads, row = at / spec->kv_heads % rows;
        const int64_t b = at / spec->kv_heads / rows, list = fill->lists > 1 ? head : 0;
        uint16_t *const k = row_at(fill, TENSOR(K), b, row, head);
        uint16_t *const v = row_at(fill, TENSOR(V), b, row, head);
        smelt__normals_row(fill->normals, fill->problem->options.seed, STREAM_K, (uint64_t)at, k,
                           spec->dqk);
        smelt__normals_row(fill->normals, fill->problem->options.seed, STREAM_V, (uint64_t)at, v,
                           spec->dv);
        if (fill->problem->options.spiky)
            smelt__spiky_key(&fill->problem->options, spec->dqk, row, k);
        if (row % spec->granularity <
            fill->reach[(b * fill->lists + list) * fill->entries + row / spec->granularity])
            continue;
        memset(k, 0xff, (size_t)spec->dqk * sizeof *k);
        memset(v, 0xff, (size_t)spec->dv * sizeof *v);
    }
}

static int fill_all(struct fill *fill) {
    struct smelt__problem *const problem = fill->problem;
    const int64_t batches = problem->options.batches, queries = batches * problem->options.tokens;
    int64_t *const capacity = &((smelt_sparse_gqa_args *)problem->args)->query_capacity;
    float *const sink = smelt__problem_data(problem, TENSOR(SINK));
    smelt__parallel_for(queries, 16, fill_queries, fill);
    if (sink)
        smelt__sinks_fill(problem->options.seed, (uint64_t)fill->spec->heads, sink);
    if (problem->options.query_list &&
        smelt__query_list_make(problem, TENSOR(QUERIES), TENSOR(QUERY_COUNT), capacity) != 0)
        return -1;
    fill->inputs = inputs_of(problem);
    smelt__parallel_for(queries, 16, mark_rows, fill);
    smelt__parallel_for(batches * problem->options.rows * fill->spec->kv_heads, 256, fill_rows,
                        fill);
    problem->valid_slots = atomic_load(&fill->valid_rows);
    problem->computed = atomic_load(&fill->computed);
    return 0;
}

static int fill(struct smelt__problem *problem) {
    struct fill *const fill = calloc(1, sizeof *fill);
    int failed = !fill;
    if (fill) {
        fill->problem = problem;
        fill->spec = problem->spec;
        fill->normals = smelt__normals();
        fill->lists = smelt__sparse_gqa_list_count(problem->spec);
        fill->entries = entries_of(problem);
        fill->reach = calloc((size_t)(problem->options.batches * fill->lists * fill->entries) + 1,
                             sizeof *fill->reach);
        failed = !fill->reach || fill_all(fill) != 0;
        free((void *)fill->reach);
    }
    free(fill);
    return failed ? -1 : 0;
}

/* ---- footprint ------------------------------------------------------------------------------- */

/* `rows`: [width * granularity], scratch. */
static void touch_list(const struct smelt__problem *problem, const smelt_sparse_gqa_args *inputs,
                       int64_t query, int64_t list, int64_t *rows,
                       struct smelt__footprints *footprints) {
    const struct smelt__sparse_gqa_spec *spec = problem->spec;
    const int64_t b = query / problem->options.tokens, t = query % problem->options.tokens;
    const int64_t lists = smelt__sparse_gqa_list_count(spec);
    const int64_t count = smelt__sparse_gqa_rows(spec, inputs, query, list, rows);
    smelt__touch_row(footprints, TENSOR(TOPK_LENGTH), b, t, list);
    smelt__touch(footprints, TENSOR(INDICES),
                 smelt__problem_at(problem, TENSOR(INDICES), b, t, list),
                 smelt__sparse_gqa_slots(inputs, query, list));
    for (int64_t i = 0; i < count; i++)
        for (int64_t head = list; head < spec->kv_heads; head += lists) {
            smelt__touch_row(footprints, TENSOR(K), b, rows[i], head);
            smelt__touch_row(footprints, TENSOR(V), b, rows[i], head);
        }
}

static void footprint(const struct smelt__problem *problem, struct smelt__footprints *footprints) {
    const struct smelt__sparse_gqa_spec *spec = problem->spec;
    const smelt_sparse_gqa_args inputs = inputs_of(problem);
    const int64_t queries = problem->options.batches * problem->options.tokens;
    const int32_t *const count = smelt__problem_data(problem, TENSOR(QUERY_COUNT));
    int64_t *const rows = malloc((size_t)(inputs.width * spec->granularity) * sizeof *rows);
    footprints->failed |= !rows;
    for (int64_t query = 0; rows && query < queries; query++) {
        const int64_t b = query / inputs.tokens, t = query % inputs.tokens;
        if (!is_computed(problem, query))
            continue;
        for (int64_t head = 0; head < spec->heads; head++) {
            smelt__touch_row(footprints, TENSOR(Q), b, t, head);
            smelt__touch_row(footprints, TENSOR(OUT), b, t, head);
            smelt__touch_row(footprints, TENSOR(LSE), b, t, head);
        }
        smelt__touch_row(footprints, TENSOR(LIMIT), b, t, 0);
        for (int64_t list = 0; footprints->inputs && list < smelt__sparse_gqa_list_count(spec); list++)
            touch_list(problem, &inputs, query, list, rows, footprints);
    }
    smelt__touch(footprints, TENSOR(QUERIES), 0,
                 count ? least(*count, inputs.query_capacity) : inputs.query_capacity);
    smelt__touch_row(footprints, TENSOR(QUERY_COUNT), 0, 0, 0);
    smelt__touch_row(footprints, TENSOR(SINK), 0, 0, 0);
    free(rows);
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
static int rates(const struct smelt__problem *problem,
                 struct smelt__rate found[SMELT__MOST_RATES]) {
    const struct smelt__sparse_gqa_spec *spec = problem->spec;
    const double columns = (double)problem->valid_slots * (spec->dqk + spec->dv);
    found[0] = SMELT__TFLOPS(2 * columns * (spec->heads / spec->kv_heads) / 1e12, TFLOPS_CEILING);
    found[1] = SMELT__TBS("gather", 2, columns * 2 / 1e12, GATHER_TBS);
    return 2;
}

/* ---- comparison ------------------------------------------------------------------------------ */

/* As sparse_attn's (sparse_attn_compare.c). */
static const double OUT_TOLERANCE = 4e-3, ROW_TOLERANCE = 8e-3, ELEMENT_TOLERANCE = 1.1 / 256;
static const double LSE_TOLERANCE = 5e-5, TOLERANCE_PER_SCORE = 4.3e-6;
static const double SMALLEST_ROW_NORM = 1e-30;

enum { OUT_OVERALL, OUT_ROW, OUT_ELEMENT, LSE, LARGEST_SCORE, METRICS };

#define OUT SMELT__OF(TENSOR(OUT))

static const struct smelt__metric metrics[METRICS] = {
    [OUT_OVERALL] = {"relative_error", "out", "out, relative", "relative error of out",
                     SMELT__OVERALL, OUT},
    [OUT_ROW] = {"relative_error", "out_row", "worst row", "relative error of out", SMELT__LARGEST,
                 OUT},
    [OUT_ELEMENT] = {"relative_error", "out_element", "worst element",
                     "error of an element of out, relative to its terms,", SMELT__LARGEST, OUT},
    [LSE] = {"max_abs_error", "lse", "lse", "error of lse", SMELT__LARGEST, SMELT__OF(TENSOR(LSE))},
    [LARGEST_SCORE] = {"", "largest_score", NULL, "score", SMELT__LARGEST, 0},
};

enum { EMPTY_QUERY, FINITE, RULES };

static const struct smelt__rule rules[RULES] = {
    [EMPTY_QUERY] = {"empty_query", OUT, "out of a query without a valid row is not 0"},
    [FINITE] = {"finite", OUT, "out is NaN, infinite or not written"},
};

/* The difference of two numbers of which one may be -inf: 0 when both are, else infinite. */
static double difference(double got, double expected) {
    if (isinf(expected))
        return got == expected ? 0 : INFINITY;
    return isfinite(got) ? fabs(got - expected) : INFINITY;
}

static void compare_row(const uint16_t *out, const double *expected, const double *terms, int dv,
                        int empty, int head, struct smelt__finding *finding) {
    double different = 0, reference = 0;
    for (int d = 0; d < dv; d++) {
        const double got = (double)smelt__bf16_to_float(out[d]), delta = got - expected[d];
        if ((empty && !smelt__finding_rule(finding, EMPTY_QUERY, got == 0, head)) ||
            !smelt__finding_rule(finding, FINITE, isfinite(got), head))
            return;
        different += delta * delta;
        reference += expected[d] * expected[d];
        smelt__finding_enlarge(finding, OUT_ELEMENT,
                               fabs(delta) / fmax(terms[d] + fabs(expected[d]), SMALLEST_ROW_NORM),
                               head);
    }
    smelt__finding_enlarge(finding, OUT_ROW,
                           sqrt(different) / fmax(sqrt(reference), SMALLEST_ROW_NORM), head);
    finding->metrics[OUT_OVERALL].value += different;
    finding->metrics[OUT_OVERALL].weight += fmax(reference, SMALLEST_ROW_NORM * SMALLEST_ROW_NORM);
}

static void compare_heads(const struct smelt__placed *placed, int64_t query,
                          const struct smelt__sparse_gqa_results *expected,
                          struct smelt__finding *finding) {
    const struct smelt__problem *const problem = placed->problem;
    const struct smelt__sparse_gqa_spec *const spec = problem->spec;
    const int64_t b = query / problem->options.tokens, t = query % problem->options.tokens;
    smelt__finding_enlarge(finding, LARGEST_SCORE, *expected->max_abs, 0);
    for (int head = 0; head < spec->heads && !finding->broken; head++) {
        const double *const out = expected->out + (int64_t)head * spec->dv;
        const double lse = expected->lse[head];
        compare_row(
            smelt__compared_row(placed, finding, TENSOR(OUT),
                                smelt__problem_at(problem, TENSOR(OUT), b, t, head), spec->dv, out),
            out, expected->terms + (int64_t)head * spec->dv, spec->dv, isinf(lse), head, finding);
        const float *const got =
            smelt__compared_row(placed, finding, TENSOR(LSE),
                                smelt__problem_at(problem, TENSOR(LSE), b, t, head), 1, &lse);
        smelt__finding_enlarge(finding, LSE, difference((double)*got, lse), head);
    }
}

static void compare_query(const struct smelt__placed *placed, const void *prepared, int64_t query,
                          struct smelt__finding *finding) {
    const struct smelt__sparse_gqa_spec *const spec = placed->problem->spec;
    const smelt_sparse_gqa_args inputs = inputs_of(placed->problem);
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
    const double by_score = TOLERANCE_PER_SCORE * results[LARGEST_SCORE].value;
    const double by_scale = (double)problem->options.scale * sqrt(spec->dqk);
    /* Of one row what is over everything is the row's own; of many, outliers even out. */
    const double rows = (double)(compared > 0 ? compared : 1) * spec->heads;
    results[OUT_OVERALL].bar = OUT_TOLERANCE + (ROW_TOLERANCE - OUT_TOLERANCE) / rows + by_score;
    results[OUT_ROW].bar = ROW_TOLERANCE + by_score;
    results[OUT_ELEMENT].bar = ELEMENT_TOLERANCE + by_score;
    results[LSE].bar = LSE_TOLERANCE * fmax(1, by_scale) + by_score;
}

static const struct smelt__comparison comparisons[] = {
    {
        SMELT__UNITS("query", "head", TENSOR(B), TENSOR(T)),
        SMELT__METRICS(metrics),
        SMELT__RULES(rules),
        .wanted = is_computed,
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
    {NULL, 0, 0},
};

static int takes_shared(const void *spec) {
    return ((const struct smelt__sparse_gqa_spec *)spec)->lists == SMELT__LISTS_SHARED;
}

static int takes_kv(const void *spec) {
    return !takes_shared(spec);
}

#define FORWARD(lists, taker)                                                                      \
    {                                                                                              \
        SMELT__PASS(FORWARD, "forward", &smelt__sparse_gqa_table[lists]),                          \
            .takes = (taker), .given = given, .shape = shape, .leaves_free = 1                     \
    }

static const struct smelt__harness_pass passes[] = {
    FORWARD(SMELT__LISTS_SHARED, takes_shared),
    FORWARD(SMELT__LISTS_OF_KV_HEADS, takes_kv),
};

/* MiniMax-M3's attention, Qwen3.8-Flash-Next's, and one like NSA's. */
#define MSA "sparse_gqa:heads=64,kv_heads=4,dqk=128,dv=128,topk=16,granularity=128,lists=kv"
#define QSA "sparse_gqa:heads=24,kv_heads=2,dqk=256,dv=256,topk=512,granularity=4"
#define NSA "sparse_gqa:heads=64,kv_heads=4,dqk=192,dv=128,topk=16,granularity=64,lists=kv"
#define AT(spec_, T) .spec = spec_, .tokens = T, .rows = T
#define DRIFT .lists = SMELT__LISTS_DRIFT

static const struct smelt__harness_shape peers[] = {
    {AT(MSA, 8192)},        {AT(MSA, 65536)}, {AT(MSA, 8192), DRIFT}, {AT(QSA, 8192)},
    {AT(QSA, 8192), DRIFT}, {AT(NSA, 8192)},  {AT(NSA, 8192), DRIFT},
};

const struct smelt__harness_operator smelt__harness_sparse_gqa = {
    SMELT__HARNESS_ROW(sparse_gqa),
    SMELT__HARNESS_KEYS(sparse_gqa),
    .own_options = own_options,
    .own_option_count = sizeof own_options / sizeof own_options[0],
    .defaults = defaults,
    .small = small,
    .draw = draw,
    .variation = variation,
    .trial = trial,
    .bench = {.tokens = 8192, .rows = 8192},
};
