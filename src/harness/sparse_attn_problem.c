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

static const struct smelt__slots index_rows = {TENSOR(INDICES), TENSOR(TOPK_LENGTH), NULL};

enum { STREAM_Q = 1, STREAM_KV, STREAM_LENGTH, STREAM_SINK, STREAM_QUERIES };
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

/* Spiky heads: scores are multiplied by 1, 8 or 40, and all of a head's moved by 110 or -110
 * through the last column, where every key holds 8. In every second query they are not multiplied
 * but rise from the table's first row to its last by 1000, in every second head fall, by as much or
 * by 128, through the column before, where keys hold their place in the table: key blocks in order
 * each move the maximum, or leave it far above, or in long lists a little, and all of them together
 * by more than fp32's exponents reach. */
static const float SPIKE_KEY = 8.0F, SPIKE_SHIFT = 110.0F, SPIKE_RISE = 1000.0F,
                   SPIKE_SLOW_FALL = 128.0F;

/* No score of any problem is so many standard deviations above the mean (probability 10^-12). */
static const double RARE_DEVIATIONS = 7;

void smelt__spiky_query(const struct smelt__problem_options *options, int heads, int dqk,
                        uint64_t row, uint16_t *q) {
    static const float factors[] = {1.0F, 8.0F, 40.0F};
    const float scale = options->scale;
    const int rises = row / (uint64_t)heads % 2 == 1;
    struct smelt__random random = smelt__random_at(options->seed, STREAM_Q, ~row);
    float factor = rises ? 1.0F : factors[smelt__random_below(&random, 3)];
    float shift = SPIKE_SHIFT / (SPIKE_KEY * scale);
    for (int d = 0; d < dqk; d++)
        q[d] = smelt__bf16_from_float(factor * smelt__bf16_to_float(q[d]));
    q[dqk - 1] = smelt__bf16_from_float(smelt__random_next(&random) & 1 ? shift : -shift);
    float rise = row % 2 == 0 ? SPIKE_RISE : row % 4 == 1 ? -SPIKE_RISE : -SPIKE_SLOW_FALL;
    q[dqk - 2] = smelt__bf16_from_float(rises ? rise / scale : 0.0F);
}

void smelt__spiky_key(const struct smelt__problem_options *options, int dqk, int64_t number,
                      uint16_t *key) {
    key[dqk - 1] = smelt__bf16_from_float(SPIKE_KEY);
    key[dqk - 2] = smelt__bf16_from_float((float)number / (float)options->rows);
}

double smelt__sparse_attn_estimate_lse(const struct smelt__problem *problem, int dqk,
                                       const uint16_t *q, int64_t valid) {
    const double scale = (double)problem->options.scale;
    const int spikes = problem->options.spiky ? 2 : 0; /* columns of a key that are not random */
    double square = 0, middle = 0;
    for (int d = 0; d < dqk - spikes; d++)
        square += pow((double)smelt__bf16_to_float(q[d]), 2);
    if (spikes)
        middle = (double)(SPIKE_KEY * smelt__bf16_to_float(q[dqk - 1])) +
                 fmax(0, (double)smelt__bf16_to_float(q[dqk - 2]));
    const double deviation = scale * sqrt(square);
    return scale * middle +
           fmax(log((double)valid) + deviation * deviation / 2, RARE_DEVIATIONS * deviation);
}

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

/* Normal values; with enough heads also -inf (no sink), one sink that has all of the weight, and
 * one whose exponential is subnormal. */
void smelt__sinks_fill(uint64_t seed, uint64_t heads, float *sink) {
    const struct smelt__normals *const normals = smelt__normals();
    struct smelt__random random = smelt__random_at(seed, STREAM_SINK, 0);
    for (uint64_t head = 0; head < heads; head++) {
        uint64_t bits = smelt__random_next(&random);
        sink[head] = 2.0F * smelt__bf16_to_float(normals->values[bits & (SMELT__NORMALS - 1)]);
    }
    if (heads >= 3) {
        sink[seed % heads] = -INFINITY;
        sink[(seed + 1) % heads] = INFINITY;
    }
    if (heads >= 4)
        sink[(seed + 2) % heads] = -90.0F;
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
