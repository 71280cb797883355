/* Problems of sparse_attn: the contents and footprints of the forward pass's tensors, and of those
 * that the backward pass shares. */
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "harness/normal.h"
#include "harness/parallel.h"
#include "harness/random.h"
#include "harness/slots.h"
#include "harness/sparse_attn.h"
#include "reference/operators.h"

#define TENSOR(name) SMELT__SPARSE_ATTN_##name

/* Inputs of both passes have the same row numbers in both tables. */
#define SAME(name)                                                                                 \
    _Static_assert((int)SMELT__SPARSE_ATTN_##name == (int)SMELT__SPARSE_ATTN_GRAD_##name, #name)
SAME(Q);
SAME(KV);
SAME(INDICES);
SAME(TOPK_LENGTH);
SAME(SINK);
SAME(QUERIES);
SAME(QUERY_COUNT);
#undef SAME

static const struct smelt__slots index_rows = {TENSOR(INDICES), TENSOR(TOPK_LENGTH), NULL, 0};

enum { STREAM_Q = 1, STREAM_KV, STREAM_QUERIES = 5 };
enum {
    STRANGERS = 4, /* entries of a query list that are not queries */
    MOST_TIMES = 3 /* maximum repetitions of a query */
};

/* ---- shape ----------------------------------------------------------------------------------- */

int64_t smelt__query_list_room(const struct smelt__problem_options *options) {
    return options->batches * options->tokens *
               (options->query_list == SMELT__QUERY_LIST_REPEATED ? MOST_TIMES : 1) +
           STRANGERS;
}

void smelt__sparse_attn_shape_extents(struct smelt__problem *problem) {
    problem->extents[TENSOR(LISTED)] = smelt__query_list_room(&problem->options);
}

smelt_sparse_attn_args smelt__sparse_attn_inputs(const struct smelt__problem *problem) {
    if (problem->pass->pass == SMELT_PASS_BACKWARD)
        return smelt__sparse_attn_forward_of(problem->args);
    return *(const smelt_sparse_attn_args *)problem->args;
}

int smelt__query_list_counted(const struct smelt__problem_options *options) {
    return options->query_list != SMELT__QUERY_LIST_NONE &&
           options->query_list != SMELT__QUERY_LIST_WHOLE &&
           options->query_list != SMELT__QUERY_LIST_REPEATED;
}

int smelt__sparse_attn_given(const struct smelt__problem *problem, int tensor) {
    const struct smelt__sparse_attn_spec *spec = problem->spec;
    const struct smelt__problem_options *options = &problem->options;
    switch (tensor) {
    case TENSOR(TOPK_LENGTH):
        return options->topk_length;
    case TENSOR(SINK):
        return spec->sink;
    case TENSOR(MAX_LOGITS):
        return options->max_logits;
    case TENSOR(QUERIES):
        return options->query_list != SMELT__QUERY_LIST_NONE;
    case TENSOR(QUERY_COUNT):
        return smelt__query_list_counted(options);
    default:
        return 1;
    }
}

/* ---- tensors --------------------------------------------------------------------------------- */

struct fill {
    struct smelt__problem *problem;
    const struct smelt__sparse_attn_spec *spec;
    const struct smelt__problem_options *options;
    _Atomic int64_t valid_slots, computed;
};

static void make_spiky(void *user, int64_t begin, int64_t end) {
    struct fill *fill = user;
    for (int64_t row = begin; row < end; row++)
        smelt__spiky_query(fill->options, fill->spec->heads, fill->spec->dqk, (uint64_t)row,
                           (uint16_t *)smelt__problem_data(fill->problem, TENSOR(Q)) +
                               smelt__problem_row(fill->problem, TENSOR(Q), row));
}

static void finish_kv(void *user, int64_t begin, int64_t end) {
    struct fill *fill = user;
    const int64_t rows = fill->options->rows;
    const int dqk = fill->spec->dqk;
    for (int64_t row = begin; row < end; row++) {
        const int64_t number = row % rows;
        uint16_t *to = smelt__problem_data(fill->problem, TENSOR(KV));
        to += smelt__problem_row(fill->problem, TENSOR(KV), row);
        if (fill->options->spiky)
            smelt__spiky_key(fill->options, dqk, number, to);
        if (smelt__lists_avoids(fill->options, number))
            memset(to, 0xff, (size_t)dqk * sizeof *to); /* NaN */
    }
}

static void count_slots(void *user, int64_t begin, int64_t end) {
    struct fill *fill = user;
    int64_t slots = 0, computed = 0;
    for (int64_t query = begin; query < end; query++) {
        const int times = fill->problem->listed ? fill->problem->listed[query] : 1;
        if (times == 0)
            continue;
        slots += times * smelt__problem_valid_slots(fill->problem, query);
        computed += times;
    }
    atomic_fetch_add(&fill->valid_slots, slots);
    atomic_fetch_add(&fill->computed, computed);
}

int64_t smelt__problem_valid_slots(const struct smelt__problem *problem, int64_t query) {
    const smelt_sparse_attn_args inputs = smelt__sparse_attn_inputs(problem);
    return smelt__sparse_attn_valid_rows(problem->spec, &inputs, query, NULL);
}

/* ---- query list ------------------------------------------------------------------------------ */

/* A random half of the queries, in random order, with some entries that are not queries. */
static int32_t fill_query_list(struct smelt__problem *problem, int32_t *queries) {
    const struct smelt__problem_options *options = &problem->options;
    const int64_t total = options->batches * options->tokens;
    const int32_t strangers[STRANGERS] = {-1, (int32_t)total, INT32_MAX, INT32_MIN};
    struct smelt__random random = smelt__random_at(options->seed, STREAM_QUERIES, 0);
    int32_t count = 0;
    for (int64_t query = 0; query < total; query++) {
        int times = query == 0 || (smelt__random_next(&random) & 1);
        if (times > 0 && options->query_list == SMELT__QUERY_LIST_REPEATED)
            times += (int)smelt__random_below(&random, MOST_TIMES);
        problem->listed[query] = (uint8_t)times;
        for (int k = 0; k < times; k++)
            queries[count++] = (int32_t)query;
    }
    for (int k = 0; k < STRANGERS; k++)
        queries[count++] = strangers[k];
    for (int32_t i = count - 1; i > 0; i--) {
        const int32_t j = (int32_t)smelt__random_below(&random, i + 1), kept = queries[i];
        queries[i] = queries[j];
        queries[j] = kept;
    }
    return count;
}

/* Queries that are not in the list follow it, so that a kernel that reads too far computes them. */
int smelt__query_list_make(struct smelt__problem *problem, int queries_row, int count_row,
                           int64_t *capacity) {
    const struct smelt__problem_options *options = &problem->options;
    const int64_t total = options->batches * options->tokens;
    int32_t *queries = smelt__problem_data(problem, queries_row);
    int32_t *query_count = smelt__problem_data(problem, count_row);
    problem->listed = calloc((size_t)total + 1, 1);
    if (!problem->listed)
        return -1;
    const int32_t count = fill_query_list(problem, queries);
    int64_t all = count;
    for (int64_t query = 0; query < total; query++)
        if (!problem->listed[query])
            queries[all++] = (int32_t)query;
    *capacity = options->query_list == SMELT__QUERY_LIST_PARTIAL ? all : count;
    if (options->query_list == SMELT__QUERY_LIST_EMPTY)
        memset(problem->listed, 0, (size_t)total);
    if (query_count)
        *query_count = options->query_list == SMELT__QUERY_LIST_CLAMPED ? count + 1000
                       : options->query_list == SMELT__QUERY_LIST_EMPTY ? -5
                                                                        : count;
    return 0;
}

static int make_query_list(struct smelt__problem *problem) {
    int64_t *const capacity = problem->pass->pass == SMELT_PASS_BACKWARD
                                  ? &((smelt_sparse_attn_grad_args *)problem->args)->query_capacity
                                  : &((smelt_sparse_attn_args *)problem->args)->query_capacity;
    return smelt__query_list_make(problem, TENSOR(QUERIES), TENSOR(QUERY_COUNT), capacity);
}

int smelt__sparse_attn_fill(struct smelt__problem *problem) {
    const struct smelt__problem_options *options = &problem->options;
    const int64_t queries = options->batches * options->tokens;
    float *sink = smelt__problem_data(problem, TENSOR(SINK));
    struct fill *fill = malloc(sizeof *fill);
    if (!fill)
        return -1;
    fill->problem = problem;
    fill->spec = problem->spec;
    fill->options = options;
    atomic_init(&fill->valid_slots, 0);
    atomic_init(&fill->computed, 0);
    smelt__normals_fill(problem, TENSOR(Q), STREAM_Q);
    if (options->spiky)
        smelt__parallel_for(queries * fill->spec->heads, 256, make_spiky, fill);
    smelt__normals_fill(problem, TENSOR(KV), STREAM_KV);
    smelt__parallel_for(options->batches * options->rows, 256, finish_kv, fill);
    smelt__slots_fill(problem, &index_rows);
    if (sink)
        smelt__sinks_fill(options->seed, (uint64_t)fill->spec->heads, sink);
    const int failed = options->query_list ? make_query_list(problem) : 0;
    if (!failed)
        smelt__parallel_for(queries, 64, count_slots, fill);
    problem->valid_slots = atomic_load(&fill->valid_slots);
    problem->computed = atomic_load(&fill->computed);
    free(fill);
    return failed;
}

static int compute(const struct smelt__forward *forward, int64_t query, double *out, double *lse) {
    struct smelt__sparse_attn_results results = {.out = out, .lse = lse};
    return smelt__sparse_attn_reference(forward->spec, forward->inputs, &query, 1, &results);
}

static int64_t valid(const struct smelt__forward *forward, int64_t query, int head) {
    (void)head;
    return smelt__sparse_attn_valid_rows(forward->spec, forward->inputs, query, NULL);
}

static double denominator(const struct smelt__forward *forward, int head, double lse) {
    return smelt__sparse_attn_denominator(forward->spec, forward->inputs, head, lse);
}

int smelt__sparse_attn_fill_results(struct smelt__problem *problem, int out, int lse) {
    const struct smelt__sparse_attn_spec *spec = problem->spec;
    const smelt_sparse_attn_args inputs = smelt__sparse_attn_inputs(problem);
    const struct smelt__forward forward = {
        problem,     spec,
        &inputs,     spec->heads,
        spec->dqk,   spec->dv,
        TENSOR(Q),   out,
        lse,         (double)problem->valid_slots * spec->heads * (spec->dqk + spec->dv),
        compute,     valid,
        denominator,
    };
    return smelt__forward_fill(&forward);
}

/* ---- footprint ------------------------------------------------------------------------------- */

void smelt__sparse_attn_footprint(const struct smelt__problem *problem,
                                  struct smelt__footprints *footprints) {
    const smelt_sparse_attn_args inputs = smelt__sparse_attn_inputs(problem);
    const int32_t *count = smelt__problem_data(problem, TENSOR(QUERY_COUNT));
    const int64_t queries = problem->options.batches * problem->options.tokens;
    const int64_t capacity = inputs.query_capacity;
    int64_t *rows = malloc((size_t)inputs.width * sizeof *rows);
    footprints->failed |= !rows;
    for (int64_t query = 0; rows && footprints->inputs && query < queries; query++) {
        if (problem->listed && !problem->listed[query])
            continue;
        smelt__slots_touch(problem, &index_rows, query, footprints);
        const int64_t valid = smelt__sparse_attn_valid_rows(problem->spec, &inputs, query, rows);
        for (int64_t i = 0; i < valid; i++)
            smelt__touch_row(footprints, TENSOR(KV), query / problem->options.tokens, rows[i], 0);
    }
    smelt__touch(footprints, TENSOR(QUERIES), 0, count && *count < capacity ? *count : capacity);
    free(rows);
}
