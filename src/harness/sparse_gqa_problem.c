/* Problems of sparse_gqa: what the tensors that both passes read hold, and what of them a call reads. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "harness/normal.h"
#include "harness/parallel.h"
#include "harness/random.h"
#include "harness/sparse_attn.h"
#include "harness/sparse_gqa.h"

#define TENSOR(name) SMELT__SPARSE_GQA_##name

enum { STREAM_Q = 1, STREAM_K, STREAM_V, STREAM_LIMITS };

/* ---- shape ----------------------------------------------------------------------------------- */

void smelt__sparse_gqa_shape(struct smelt__problem *problem) {
    problem->extents[TENSOR(LISTED)] = smelt__query_list_room(&problem->options);
}

int smelt__sparse_gqa_given(const struct smelt__problem *problem, int tensor) {
    const struct smelt__sparse_gqa_spec *spec = problem->spec;
    switch (tensor) {
    case TENSOR(TOPK_LENGTH):
        return problem->options.topk_length;
    case TENSOR(LIMIT):
        return problem->options.own[SMELT__LIMITS] != SMELT__LIMITS_NONE;
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

/* Whether the problem has v: sparse_gqa_scores has lse, fp32, by that number. */
static int has_values(const struct smelt__problem *problem) {
    return problem->pass->tensors->rows[TENSOR(V)].element == SMELT__BF16;
}

smelt_sparse_gqa_args smelt__sparse_gqa_inputs(const struct smelt__problem *problem) {
    smelt_sparse_gqa_args inputs;
    smelt_sparse_gqa_grad_args grad;
    if (!has_values(problem))
        return *(const smelt_sparse_gqa_args *)problem->args;
    if (problem->pass->pass == SMELT_PASS_FORWARD) {
        smelt__problem_arguments(problem, &inputs);
        return inputs;
    }
    smelt__problem_arguments(problem, &grad);
    return smelt__sparse_gqa_forward_of(&grad);
}

static int64_t entries_of(const struct smelt__problem *problem) {
    const struct smelt__sparse_gqa_spec *spec = problem->spec;
    return (problem->options.rows + spec->granularity - 1) / spec->granularity;
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
        (int32_t)(of->own[SMELT__LIMITS] == SMELT__LIMITS_CAUSAL ? t * of->rows / of->tokens + 1
                  : kind < 4                                     ? odd[kind]
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
                const int64_t reached = row[i] < 0 ? 0 : smelt__least(limit - row[i] * r, r);
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
        uint16_t *const v =
            has_values(fill->problem) ? row_at(fill, TENSOR(V), b, row, head) : NULL;
        smelt__normals_row(fill->normals, fill->problem->options.seed, STREAM_K, (uint64_t)at, k,
                           spec->dqk);
        if (v)
            smelt__normals_row(fill->normals, fill->problem->options.seed, STREAM_V, (uint64_t)at,
                               v, spec->dv);
        if (fill->problem->options.spiky)
            smelt__spiky_key(&fill->problem->options, spec->dqk, row, k);
        if (row % spec->granularity <
            fill->reach[(b * fill->lists + list) * fill->entries + row / spec->granularity])
            continue;
        memset(k, 0xff, (size_t)spec->dqk * sizeof *k);
        if (v)
            memset(v, 0xff, (size_t)spec->dv * sizeof *v);
    }
}

static int fill_all(struct fill *fill) {
    struct smelt__problem *const problem = fill->problem;
    const int64_t batches = problem->options.batches, queries = batches * problem->options.tokens;
    int64_t *const capacity = problem->pass->pass == SMELT_PASS_FORWARD
                                  ? &((smelt_sparse_gqa_args *)problem->args)->query_capacity
                                  : &((smelt_sparse_gqa_grad_args *)problem->args)->query_capacity;
    float *const sink = smelt__problem_data(problem, TENSOR(SINK));
    smelt__parallel_for(queries, 16, fill_queries, fill);
    if (sink)
        smelt__sinks_fill(problem->options.seed, (uint64_t)fill->spec->heads, sink);
    if (problem->options.query_list &&
        smelt__query_list_make(problem, TENSOR(QUERIES), TENSOR(QUERY_COUNT), capacity) != 0)
        return -1;
    fill->inputs = smelt__sparse_gqa_inputs(problem);
    smelt__parallel_for(queries, 16, mark_rows, fill);
    smelt__parallel_for(batches * problem->options.rows * fill->spec->kv_heads, 256, fill_rows,
                        fill);
    problem->valid_slots = atomic_load(&fill->valid_rows);
    problem->computed = atomic_load(&fill->computed);
    return 0;
}

int smelt__sparse_gqa_fill(struct smelt__problem *problem) {
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

static int compute(const struct smelt__forward *forward, int64_t query, double *out, double *lse) {
    const size_t elements = (size_t)(forward->heads * forward->dv);
    if (!out)
        return smelt__sparse_gqa_scores_lse(forward->spec, forward->inputs, query, lse);
    double max_abs, *const terms = malloc(elements * sizeof *terms);
    const struct smelt__sparse_gqa_results results = {out, terms, lse, &max_abs};
    const int failed =
        !terms || smelt__sparse_gqa_reference(forward->spec, forward->inputs, query, &results) != 0;
    free(terms);
    return failed ? -1 : 0;
}

static int64_t valid(const struct smelt__forward *forward, int64_t query, int head) {
    const struct smelt__sparse_gqa_spec *spec = forward->spec;
    const int64_t list = head / (spec->heads / smelt__sparse_gqa_list_count(spec));
    return smelt__sparse_gqa_rows(spec, forward->inputs, query, list, NULL);
}

static double denominator(const struct smelt__forward *forward, int head, double lse) {
    return smelt__sparse_gqa_denominator(forward->spec, forward->inputs, head, lse);
}

int smelt__sparse_gqa_fill_results(struct smelt__problem *problem, int out, int lse) {
    const struct smelt__sparse_gqa_spec *spec = problem->spec;
    const smelt_sparse_gqa_args inputs = smelt__sparse_gqa_inputs(problem);
    const struct smelt__forward forward = {
        problem,
        spec,
        &inputs,
        spec->heads,
        spec->dqk,
        spec->dv,
        TENSOR(Q),
        out,
        lse,
        (double)problem->valid_slots * (spec->heads / spec->kv_heads) * (spec->dqk + spec->dv),
        compute,
        valid,
        denominator,
    };
    return smelt__forward_fill(&forward);
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
    smelt__touch(footprints, TENSOR(INDICES),
                 smelt__problem_at(problem, TENSOR(INDICES), b, t, list),
                 smelt__sparse_gqa_slots(inputs, query, list));
    for (int64_t i = 0; i < count; i++)
        for (int64_t head = list; head < spec->kv_heads; head += lists) {
            smelt__touch_row(footprints, TENSOR(K), b, rows[i], head);
            if (has_values(problem))
                smelt__touch_row(footprints, TENSOR(V), b, rows[i], head);
        }
}

void smelt__sparse_gqa_footprint(const struct smelt__problem *problem,
                                 struct smelt__footprints *footprints) {
    const struct smelt__sparse_gqa_spec *spec = problem->spec;
    const smelt_sparse_gqa_args inputs = smelt__sparse_gqa_inputs(problem);
    const int64_t queries = problem->options.batches * problem->options.tokens;
    const int32_t *const count = smelt__problem_data(problem, TENSOR(QUERY_COUNT));
    int64_t *const rows = malloc((size_t)(inputs.width * spec->granularity) * sizeof *rows);
    footprints->failed |= !rows;
    for (int64_t query = 0; rows && footprints->inputs && query < queries; query++)
        for (int64_t list = 0;
             smelt__query_is_computed(problem, query) && list < smelt__sparse_gqa_list_count(spec);
             list++)
            touch_list(problem, &inputs, query, list, rows, footprints);
    smelt__touch(footprints, TENSOR(QUERIES), 0,
                 count ? smelt__least(*count, inputs.query_capacity) : inputs.query_capacity);
    free(rows);
}
