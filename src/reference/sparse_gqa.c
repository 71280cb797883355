/* sparse_gqa: see operators.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/operators.h"
#include "reference/vectors.h"

/* ---- lists ----------------------------------------------------------------------------------- */

/* `value` in 0..most. */
static int64_t clamped(int64_t value, int64_t most) {
    return value < 0 ? 0 : value < most ? value : most;
}

int64_t smelt__sparse_gqa_limit(const smelt_sparse_gqa_args *args, int64_t query) {
    const int64_t batch = query / args->tokens, token = query % args->tokens;
    const int32_t *const limits = args->limit.data;
    return limits ? clamped(limits[batch * args->limit.strides[0] + token * args->limit.strides[1]],
                            args->rows)
                  : args->rows;
}

int64_t smelt__sparse_gqa_slots(const smelt_sparse_gqa_args *args, int64_t query, int64_t list) {
    const int64_t batch = query / args->tokens, token = query % args->tokens;
    const int64_t *const strides = args->topk_length.strides;
    const int32_t *const lengths = args->topk_length.data;
    return lengths ? clamped(lengths[batch * strides[0] + token * strides[1] + list * strides[2]],
                             args->width)
                   : args->width;
}

const int32_t *smelt__sparse_gqa_list(const smelt_sparse_gqa_args *args, int64_t query,
                                      int64_t list) {
    const int64_t *const strides = args->indices.strides;
    return (const int32_t *)args->indices.data + query / args->tokens * strides[0] +
           query % args->tokens * strides[1] + list * strides[2];
}

int64_t smelt__sparse_gqa_rows(const struct smelt__sparse_gqa_spec *spec,
                               const smelt_sparse_gqa_args *args, int64_t query, int64_t list,
                               int64_t *rows) {
    const int64_t limit = smelt__sparse_gqa_limit(args, query), r = spec->granularity;
    const int64_t slots = smelt__sparse_gqa_slots(args, query, list);
    const int32_t *const entries = smelt__sparse_gqa_list(args, query, list);
    int64_t count = 0;
    for (int64_t i = 0; i < slots; i++)
        for (int64_t row = entries[i] * r; entries[i] >= 0 && row < (entries[i] + 1) * r; row++)
            if (row < limit) {
                if (rows)
                    rows[count] = row;
                count++;
            }
    return count;
}

int64_t smelt__sparse_gqa_list_count(const struct smelt__sparse_gqa_spec *spec) {
    return spec->lists == SMELT__LISTS_OF_KV_HEADS ? spec->kv_heads : 1;
}

/* ---- memory of one thread -------------------------------------------------------------------- */

struct scratch {
    int64_t *rows;         /* [width * granularity] */
    double *keys, *values; /* [rows, dqk] and [rows, dv] */
    double *q, *scores;    /* [dqk], [rows] */
};

static void scratch_free(struct scratch *scratch) {
    free(scratch->rows);
    free(scratch->keys);
    free(scratch->values);
    free(scratch->q);
    free(scratch->scores);
}

static int scratch_allocate(struct scratch *scratch, const struct smelt__sparse_gqa_spec *spec,
                            int64_t width) {
    const size_t rows = (size_t)(width * spec->granularity) + 1;
    scratch->rows = malloc(rows * sizeof *scratch->rows);
    scratch->keys = malloc(rows * (size_t)spec->dqk * sizeof *scratch->keys);
    scratch->values = malloc(rows * (size_t)spec->dv * sizeof *scratch->values);
    scratch->q = malloc((size_t)spec->dqk * sizeof *scratch->q);
    scratch->scores = malloc(rows * sizeof *scratch->scores);
    if (scratch->rows && scratch->keys && scratch->values && scratch->q && scratch->scores)
        return 0;
    scratch_free(scratch);
    return -1;
}

/* A row of a tensor [B, T or S, heads, columns]. */
static const uint16_t *row_of(const smelt_const_tensor *tensor, int64_t batch, int64_t row,
                              int64_t head) {
    return (const uint16_t *)tensor->data + batch * tensor->strides[0] + row * tensor->strides[1] +
           head * tensor->strides[2];
}

/* Loads a KV head's rows of a query's list; returns their number. */
static int64_t load_rows(const struct smelt__sparse_gqa_spec *spec,
                         const smelt_sparse_gqa_args *args, int64_t query, int64_t kv_head,
                         struct scratch *scratch) {
    const int64_t list = smelt__sparse_gqa_list_count(spec) > 1 ? kv_head : 0;
    const int64_t count = smelt__sparse_gqa_rows(spec, args, query, list, scratch->rows);
    for (int64_t i = 0; i < count; i++) {
        const int64_t batch = query / args->tokens, row = scratch->rows[i];
        smelt__widen(row_of(&args->k, batch, row, kv_head), spec->dqk,
                     scratch->keys + i * spec->dqk);
        smelt__widen(row_of(&args->v, batch, row, kv_head), spec->dv,
                     scratch->values + i * spec->dv);
    }
    return count;
}

/* p = exp(s) / (exp(lse) + exp(sink)) = exp(s - denominator) */
double smelt__sparse_gqa_denominator(const struct smelt__sparse_gqa_spec *spec,
                                     const smelt_sparse_gqa_args *args, int head, double lse) {
    if (!spec->sink)
        return lse;
    const double sink = (double)((const float *)args->sink.data)[head], high = fmax(sink, lse);
    return isinf(high) ? high : high + log(exp(sink - high) + exp(lse - high));
}

/* ---- forward --------------------------------------------------------------------------------- */

/* One head over `count` > 0 rows. Everything is relative to the largest score (and the sink, where it
 * is larger), so that no exponential overflows. Returns the log-sum-exp. */
static double attend(const struct smelt__sparse_gqa_spec *spec, const smelt_sparse_gqa_args *args,
                     int head, int64_t count, struct scratch *scratch, double *out, double *terms,
                     double *max_abs) {
    double highest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < count; i++) {
        scratch->scores[i] =
            (double)args->scale * smelt__dot(scratch->q, scratch->keys + i * spec->dqk, spec->dqk);
        highest = fmax(highest, scratch->scores[i]);
        *max_abs = fmax(*max_abs, fabs(scratch->scores[i]));
    }
    for (int64_t i = 0; i < count; i++)
        sum += exp(scratch->scores[i] - highest);
    const double lse = highest + log(sum),
                 denominator = smelt__sparse_gqa_denominator(spec, args, head, lse);
    for (int64_t i = 0; i < count; i++) {
        const double p = exp(scratch->scores[i] - denominator);
        for (int d = 0; d < spec->dv; d++) {
            out[d] += p * scratch->values[i * spec->dv + d];
            terms[d] += fabs(p * scratch->values[i * spec->dv + d]);
        }
    }
    return lse;
}

int smelt__sparse_gqa_reference(const struct smelt__sparse_gqa_spec *spec,
                                const smelt_sparse_gqa_args *args, int64_t query,
                                const struct smelt__sparse_gqa_results *results) {
    const int group = spec->heads / spec->kv_heads;
    struct scratch scratch;
    if (scratch_allocate(&scratch, spec, args->width) != 0)
        return -1;
    memset(results->out, 0, (size_t)spec->heads * (size_t)spec->dv * sizeof *results->out);
    memset(results->terms, 0, (size_t)spec->heads * (size_t)spec->dv * sizeof *results->terms);
    *results->max_abs = 0;
    for (int kv_head = 0; kv_head < spec->kv_heads; kv_head++) {
        const int64_t count = load_rows(spec, args, query, kv_head, &scratch);
        for (int head = kv_head * group; head < (kv_head + 1) * group; head++) {
            const int64_t first = (int64_t)head * spec->dv;
            results->lse[head] = -INFINITY;
            if (count == 0)
                continue;
            smelt__widen(row_of(&args->q, query / args->tokens, query % args->tokens, head),
                         spec->dqk, scratch.q);
            results->lse[head] = attend(spec, args, head, count, &scratch, results->out + first,
                                        results->terms + first, results->max_abs);
        }
    }
    scratch_free(&scratch);
    return 0;
}

/* ---- backward -------------------------------------------------------------------------------- */

smelt_sparse_gqa_args smelt__sparse_gqa_forward_of(const smelt_sparse_gqa_grad_args *args) {
    smelt_sparse_gqa_args forward = SMELT_SPARSE_GQA_ARGS_INIT;
    forward.batches = args->batches;
    forward.tokens = args->tokens;
    forward.rows = args->rows;
    forward.width = args->width;
    forward.scale = args->scale;
    forward.q = args->q;
    forward.k = args->k;
    forward.v = args->v;
    forward.indices = args->indices;
    forward.topk_length = args->topk_length;
    forward.limit = args->limit;
    forward.sink = args->sink;
    forward.queries = args->queries;
    forward.query_count = args->query_count;
    forward.query_capacity = args->query_capacity;
    return forward;
}

/* A head of a query. */
struct head {
    double *q, *grad_out, *out; /* [dqk], [dv], [dv] */
    double delta, delta_terms, denominator;
};

static int head_allocate(struct head *head, const struct smelt__sparse_gqa_spec *spec) {
    head->q = malloc((size_t)(spec->dqk + 2 * spec->dv) * sizeof *head->q);
    if (!head->q)
        return -1;
    head->grad_out = head->q + spec->dqk;
    head->out = head->grad_out + spec->dv;
    return 0;
}

static void load_head(const struct smelt__sparse_gqa_spec *spec,
                      const smelt_sparse_gqa_grad_args *args, const smelt_sparse_gqa_args *forward,
                      int64_t query, int number, struct head *head) {
    const int64_t b = query / args->tokens, t = query % args->tokens;
    const int64_t *const strides = args->lse.strides;
    const float lse =
        ((const float *)args->lse.data)[b * strides[0] + t * strides[1] + number * strides[2]];
    smelt__widen(row_of(&args->q, b, t, number), spec->dqk, head->q);
    smelt__widen(row_of(&args->grad_out, b, t, number), spec->dv, head->grad_out);
    smelt__widen(row_of(&args->out, b, t, number), spec->dv, head->out);
    head->delta = smelt__dot(head->out, head->grad_out, spec->dv);
    head->delta_terms = smelt__dot_of_sizes(head->out, head->grad_out, spec->dv);
    head->denominator = smelt__sparse_gqa_denominator(spec, forward, number, (double)lse);
}

/* A head and a row that its query's list names. */
struct pair {
    double score, p, ds;
    double ds_terms; /* ds, were all numbers that are added positive */
};

static struct pair pair_of(const struct smelt__sparse_gqa_spec *spec, double scale,
                           const struct head *head, const double *key, const double *value) {
    const double score = scale * smelt__dot(head->q, key, spec->dqk);
    const double p = exp(score - head->denominator);
    const double dp = smelt__dot(head->grad_out, value, spec->dv);
    const double terms = smelt__dot_of_sizes(head->grad_out, value, spec->dv) + head->delta_terms;
    return (struct pair){score, p, scale * p * (dp - head->delta), scale * p * terms};
}

/* A gradient's row while it is summed. */
struct sum {
    double *row, *terms; /* [columns] */
    int columns;
    double squares;
};

static void add_row(struct sum *sum, double factor, double size, const double *row) {
    for (int i = 0; i < sum->columns; i++) {
        sum->row[i] += factor * row[i];
        sum->terms[i] += size * fabs(row[i]);
    }
    sum->squares += factor * factor * smelt__dot(row, row, sum->columns);
}

static int sum_begin(struct sum *sum, double *row, int columns) {
    *sum = (struct sum){row, calloc((size_t)columns, sizeof *row), columns, 0};
    memset(row, 0, (size_t)columns * sizeof *row);
    return sum->terms ? 0 : -1;
}

static void sum_end(struct sum *sum, double *spread, double *cancelled) {
    *spread = sqrt(sum->squares);
    *cancelled = sum->terms ? sqrt(smelt__dot(sum->terms, sum->terms, sum->columns)) : 0;
    free(sum->terms);
}

static void compute_dq(const struct smelt__sparse_gqa_spec *spec,
                       const smelt_sparse_gqa_grad_args *args, int64_t query, struct head *head,
                       struct scratch *scratch,
                       const struct smelt__sparse_attn_row_grads *results) {
    const smelt_sparse_gqa_args forward = smelt__sparse_gqa_forward_of(args);
    const int group = spec->heads / spec->kv_heads;
    int64_t count = 0;
    *results->max_abs = 0;
    for (int number = 0; number < spec->heads; number++) {
        struct sum dq;
        if (number % group == 0)
            count = load_rows(spec, &forward, query, number / group, scratch);
        if (sum_begin(&dq, results->grads + (int64_t)number * spec->dqk, spec->dqk) == 0 && count)
            load_head(spec, args, &forward, query, number, head);
        for (int64_t i = 0; dq.terms && i < count; i++) {
            const double *const key = scratch->keys + i * spec->dqk;
            const struct pair pair =
                pair_of(spec, (double)args->scale, head, key, scratch->values + i * spec->dv);
            add_row(&dq, pair.ds, pair.ds_terms, key);
            *results->max_abs = fmax(*results->max_abs, fabs(pair.score));
        }
        sum_end(&dq, &results->spread[number], &results->cancelled[number]);
    }
}

int smelt__sparse_gqa_dq(const struct smelt__sparse_gqa_spec *spec,
                         const smelt_sparse_gqa_grad_args *args, int64_t query,
                         const struct smelt__sparse_attn_row_grads *results) {
    struct scratch scratch;
    struct head head;
    if (scratch_allocate(&scratch, spec, args->width) != 0)
        return -1;
    const int failed = head_allocate(&head, spec);
    if (!failed)
        compute_dq(spec, args, query, &head, &scratch, results);
    free(head.q);
    scratch_free(&scratch);
    return failed;
}

/* How often a query's list names the row. */
static int64_t count_slots(const struct smelt__sparse_gqa_spec *spec,
                           const smelt_sparse_gqa_args *args, int64_t query, int64_t list,
                           int64_t row) {
    const int64_t slots = smelt__sparse_gqa_slots(args, query, list);
    const int32_t *const entries = smelt__sparse_gqa_list(args, query, list);
    int64_t found = 0;
    if (row < smelt__sparse_gqa_limit(args, query))
        for (int64_t i = 0; i < slots; i++)
            found += entries[i] == row / spec->granularity;
    return found;
}

int smelt__sparse_gqa_key(const struct smelt__sparse_gqa_spec *spec,
                          const smelt_sparse_gqa_grad_args *args, const int64_t *queries,
                          int64_t query_count, int64_t key,
                          const struct smelt__sparse_attn_row_grads *dk_results,
                          const struct smelt__sparse_attn_row_grads *dv_results) {
    const smelt_sparse_gqa_args forward = smelt__sparse_gqa_forward_of(args);
    const int64_t kv_head = key % spec->kv_heads, row = key / spec->kv_heads % args->rows;
    const int64_t batch = key / spec->kv_heads / args->rows;
    const int64_t list = smelt__sparse_gqa_list_count(spec) > 1 ? kv_head : 0;
    const int group = spec->heads / spec->kv_heads;
    double *const own = malloc((size_t)(spec->dqk + spec->dv) * sizeof *own), max_abs = 0;
    struct head head;
    struct sum dk, dv;
    const int failed = head_allocate(&head, spec) | !own |
                       sum_begin(&dk, dk_results->grads, spec->dqk) |
                       sum_begin(&dv, dv_results->grads, spec->dv);
    int loaded = 0; /* a row that no query names is not read */
    for (int64_t i = 0; i < query_count && !failed; i++) {
        const int64_t query = queries ? queries[i] : i;
        const int64_t slots =
            query / args->tokens == batch ? count_slots(spec, &forward, query, list, row) : 0;
        const double times = (double)slots;
        if (slots > 0 && !loaded++) {
            smelt__widen(row_of(&args->k, batch, row, kv_head), spec->dqk, own);
            smelt__widen(row_of(&args->v, batch, row, kv_head), spec->dv, own + spec->dqk);
        }
        for (int64_t h = kv_head * group; slots > 0 && h < (kv_head + 1) * group; h++) {
            load_head(spec, args, &forward, query, (int)h, &head);
            const struct pair pair =
                pair_of(spec, (double)args->scale, &head, own, own + spec->dqk);
            add_row(&dk, times * pair.ds, times * pair.ds_terms, head.q);
            add_row(&dv, times * pair.p, times * pair.p, head.grad_out);
            max_abs = fmax(max_abs, fabs(pair.score));
        }
    }
    sum_end(&dk, dk_results->spread, dk_results->cancelled);
    sum_end(&dv, dv_results->spread, dv_results->cancelled);
    *dk_results->max_abs = *dv_results->max_abs = max_abs;
    free(own);
    free(head.q);
    return failed ? -1 : 0;
}

int smelt__sparse_gqa_dsink(const struct smelt__sparse_gqa_spec *spec,
                            const smelt_sparse_gqa_grad_args *args, const int64_t *queries,
                            int64_t query_count, int number, double *dsink, double *terms) {
    const smelt_sparse_gqa_args forward = smelt__sparse_gqa_forward_of(args);
    const double sink = (double)((const float *)args->sink.data)[number];
    const int64_t kv_head = number / (spec->heads / spec->kv_heads);
    const int64_t list = smelt__sparse_gqa_list_count(spec) > 1 ? kv_head : 0;
    struct head head;
    *dsink = *terms = 0;
    if (head_allocate(&head, spec) != 0)
        return -1;
    for (int64_t i = 0; i < query_count; i++) {
        const int64_t query = queries ? queries[i] : i;
        if (smelt__sparse_gqa_rows(spec, &forward, query, list, NULL) == 0)
            continue;
        load_head(spec, args, &forward, query, number, &head);
        /* A sink of +inf takes all. */
        const double share = isinf(sink) && sink > 0 ? 1 : exp(sink - head.denominator);
        *dsink -= head.delta * share;
        *terms += head.delta_terms * share;
    }
    free(head.q);
    return 0;
}
