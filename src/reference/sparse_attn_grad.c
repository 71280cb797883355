#include "reference/operators.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/vectors.h"

/* ---- inputs ---------------------------------------------------------------------------------- */

smelt_sparse_attn_args smelt__sparse_attn_forward_of(const smelt_sparse_attn_grad_args *args) {
    smelt_sparse_attn_args forward = SMELT_SPARSE_ATTN_ARGS_INIT;
    forward.batches = args->batches;
    forward.tokens = args->tokens;
    forward.rows = args->rows;
    forward.width = args->width;
    forward.scale = args->scale;
    forward.q = args->q;
    forward.kv = args->kv;
    forward.indices = args->indices;
    forward.topk_length = args->topk_length;
    forward.sink = args->sink;
    forward.queries = args->queries;
    forward.query_count = args->query_count;
    forward.query_capacity = args->query_capacity;
    return forward;
}

/* A call's inputs with strides resolved. */
struct inputs {
    const struct smelt__sparse_attn_spec *spec;
    smelt_sparse_attn_args forward;
    smelt_const_tensor out, lse, grad_out;
    const int64_t *queries; /* NULL: 0, 1, 2, ... */
    int64_t query_count;
};

/* out and grad_out have the same shape, so that a packed one's strides are the other's. */
static struct inputs inputs_of(const struct smelt__sparse_attn_spec *spec,
                               const smelt_sparse_attn_grad_args *args, const int64_t *queries,
                               int64_t query_count) {
    struct inputs inputs = {.spec = spec,
                            .forward = smelt__sparse_attn_forward_of(args),
                            .out = args->out,
                            .lse = args->lse,
                            .grad_out = args->grad_out,
                            .queries = queries,
                            .query_count = query_count};
    smelt_sparse_attn_args other = inputs.forward;
    memcpy(inputs.forward.out.strides, args->out.strides, sizeof args->out.strides);
    memcpy(inputs.forward.lse.strides, args->lse.strides, sizeof args->lse.strides);
    memcpy(other.out.strides, args->grad_out.strides, sizeof args->grad_out.strides);
    smelt__sparse_attn_resolve_strides(spec, &inputs.forward);
    smelt__sparse_attn_resolve_strides(spec, &other);
    memcpy(inputs.out.strides, inputs.forward.out.strides, sizeof inputs.out.strides);
    memcpy(inputs.lse.strides, inputs.forward.lse.strides, sizeof inputs.lse.strides);
    memcpy(inputs.grad_out.strides, other.out.strides, sizeof inputs.grad_out.strides);
    return inputs;
}

static int64_t query_at(const struct inputs *inputs, int64_t position) {
    return inputs->queries ? inputs->queries[position] : position;
}

/* ---- terms of the formulas ------------------------------------------------------------------- */

/* A head of a query. */
struct head {
    double *q;        /* [dqk] */
    double *grad_out; /* [dv] */
    double *out;      /* [dv] */
    double delta, delta_terms;
    double denominator; /* ln(exp(lse) + exp(sink)) */
};

/* The memory of one thread. */
struct scratch {
    double *memory;
    struct head head;
    double *terms; /* [dqk] */
    double *keys;  /* [width, dqk], or [1, dqk] */
    int64_t *rows; /* [width] */
};

static void scratch_free(struct scratch *scratch) {
    free(scratch->memory);
    free(scratch->rows);
}

static int scratch_allocate(struct scratch *scratch, const struct inputs *inputs, int64_t keys) {
    const size_t dqk = (size_t)inputs->spec->dqk, dv = (size_t)inputs->spec->dv;
    const size_t width = inputs->forward.width > 0 ? (size_t)inputs->forward.width : 1;
    scratch->memory = malloc((2 * dv + (2 + (size_t)keys) * dqk) * sizeof *scratch->memory);
    scratch->rows = malloc(width * sizeof *scratch->rows);
    if (!scratch->memory || !scratch->rows) {
        scratch_free(scratch);
        return -1;
    }
    scratch->head.q = scratch->memory;
    scratch->head.grad_out = scratch->head.q + dqk;
    scratch->head.out = scratch->head.grad_out + dv;
    scratch->terms = scratch->head.out + dv;
    scratch->keys = scratch->terms + dqk;
    return 0;
}

static const uint16_t *row_of(const smelt_const_tensor *tensor, int64_t batch, int64_t token,
                              int head) {
    return (const uint16_t *)tensor->data + batch * tensor->strides[0] +
           token * tensor->strides[1] + head * tensor->strides[2];
}

static void load_head(const struct inputs *inputs, int64_t query, int number, struct head *head) {
    const struct smelt__sparse_attn_spec *spec = inputs->spec;
    const int64_t b = query / inputs->forward.tokens, t = query % inputs->forward.tokens;
    const int64_t *strides = inputs->lse.strides;
    const float lse =
        ((const float *)inputs->lse.data)[b * strides[0] + t * strides[1] + number * strides[2]];
    smelt__widen(row_of(&inputs->forward.q, b, t, number), spec->dqk, head->q);
    smelt__widen(row_of(&inputs->grad_out, b, t, number), spec->dv, head->grad_out);
    smelt__widen(row_of(&inputs->out, b, t, number), spec->dv, head->out);
    head->delta = smelt__dot(head->out, head->grad_out, spec->dv);
    head->delta_terms = smelt__dot_of_sizes(head->out, head->grad_out, spec->dv);
    head->denominator = smelt__sparse_attn_denominator(spec, &inputs->forward, number, (double)lse);
}

static void load_key(const struct inputs *inputs, int64_t batch, int64_t row, double *key) {
    const int64_t *strides = inputs->forward.kv.strides;
    const uint16_t *kv = inputs->forward.kv.data;
    smelt__widen(kv + batch * strides[0] + row * strides[1], inputs->spec->dqk, key);
}

/* The terms of a head and a key selected by its query. */
struct pair {
    double score, p, ds;
    double ds_terms; /* as in `cancelled`: at least |ds| */
};

static struct pair pair_of(const struct inputs *inputs, const struct head *head,
                           const double *key) {
    const struct smelt__sparse_attn_spec *spec = inputs->spec;
    const double scale = (double)inputs->forward.scale;
    const double score = scale * smelt__dot(head->q, key, spec->dqk);
    const double p = exp(score - head->denominator);
    const double dp = smelt__dot(head->grad_out, key, spec->dv);
    const double terms = smelt__dot_of_sizes(head->grad_out, key, spec->dv) + head->delta_terms;
    return (struct pair){score, p, scale * p * (dp - head->delta), scale * p * terms};
}

/* sum += factor * row, terms += size * |row|; returns the squared norm of the addend. */
static double add_row(double factor, double size, const double *row, int64_t count, double *sum,
                      double *terms) {
    for (int64_t i = 0; i < count; i++) {
        sum[i] += factor * row[i];
        terms[i] += size * fabs(row[i]);
    }
    return factor * factor * smelt__dot(row, row, count);
}

static double norm(const double *row, int64_t count) {
    return sqrt(smelt__dot(row, row, count));
}

static void zero(double *row, int64_t count) {
    memset(row, 0, (size_t)count * sizeof *row);
}

/* ---- dq -------------------------------------------------------------------------------------- */

static void compute_query(const struct inputs *inputs, int64_t position, struct scratch *scratch,
                          const struct smelt__sparse_attn_row_grads *results) {
    const struct smelt__sparse_attn_spec *spec = inputs->spec;
    const int64_t query = query_at(inputs, position);
    const int64_t count =
        smelt__sparse_attn_valid_rows(spec, &inputs->forward, query, scratch->rows);
    double max_abs = 0;
    for (int64_t i = 0; i < count; i++)
        load_key(inputs, query / inputs->forward.tokens, scratch->rows[i],
                 scratch->keys + i * spec->dqk);
    for (int number = 0; number < spec->heads; number++) {
        const int64_t at = position * spec->heads + number;
        double *const dq = results->grads + at * spec->dqk;
        double squares = 0;
        zero(dq, spec->dqk);
        zero(scratch->terms, spec->dqk);
        if (count > 0)
            load_head(inputs, query, number, &scratch->head);
        for (int64_t i = 0; i < count; i++) {
            const double *const key = scratch->keys + i * spec->dqk;
            const struct pair pair = pair_of(inputs, &scratch->head, key);
            squares += add_row(pair.ds, pair.ds_terms, key, spec->dqk, dq, scratch->terms);
            max_abs = fmax(max_abs, fabs(pair.score));
        }
        if (results->spread)
            results->spread[at] = sqrt(squares);
        if (results->cancelled)
            results->cancelled[at] = norm(scratch->terms, spec->dqk);
    }
    if (results->max_abs)
        results->max_abs[position] = max_abs;
}

int smelt__sparse_attn_dq(const struct smelt__sparse_attn_spec *spec,
                          const smelt_sparse_attn_grad_args *args, const int64_t *queries,
                          int64_t query_count, const struct smelt__sparse_attn_row_grads *results) {
    const struct inputs inputs = inputs_of(spec, args, queries, query_count);
    struct scratch scratch;
    if (scratch_allocate(&scratch, &inputs, args->width) != 0)
        return -1;
    for (int64_t i = 0; i < query_count; i++)
        compute_query(&inputs, i, &scratch, results);
    scratch_free(&scratch);
    return 0;
}

/* ---- dkv ------------------------------------------------------------------------------------- */

/* The number of a query's slots that select the row. */
static int64_t count_slots(const struct inputs *inputs, int64_t query, int64_t row,
                           struct scratch *scratch) {
    const int64_t count =
        smelt__sparse_attn_valid_rows(inputs->spec, &inputs->forward, query, scratch->rows);
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++)
        found += scratch->rows[i] == row;
    return found;
}

/* All heads of a query that names the key in `slots` slots; returns the sum of the squared norms of
 * what was added. */
static double add_query(const struct inputs *inputs, int64_t query, int64_t slots,
                        struct scratch *scratch, double *dkv, double *max_abs) {
    const struct smelt__sparse_attn_spec *spec = inputs->spec;
    struct head *const head = &scratch->head;
    const double times = (double)slots;
    double squares = 0;
    for (int number = 0; number < spec->heads; number++) {
        load_head(inputs, query, number, head);
        const struct pair pair = pair_of(inputs, head, scratch->keys);
        squares += add_row(times * pair.ds, times * pair.ds_terms, head->q, spec->dqk, dkv,
                           scratch->terms);
        squares +=
            add_row(times * pair.p, times * pair.p, head->grad_out, spec->dv, dkv, scratch->terms);
        *max_abs = fmax(*max_abs, fabs(pair.score));
    }
    return squares;
}

static void compute_key(const struct inputs *inputs, int64_t key, int64_t position,
                        struct scratch *scratch,
                        const struct smelt__sparse_attn_row_grads *results) {
    const smelt_sparse_attn_args *forward = &inputs->forward;
    const int64_t batch = key / forward->rows, row = key % forward->rows;
    const int dqk = inputs->spec->dqk;
    double *const dkv = results->grads + position * dqk;
    double max_abs = 0, squares = 0;
    int loaded = 0; /* a row that no query selects is not read */
    zero(dkv, dqk);
    zero(scratch->terms, dqk);
    for (int64_t i = 0; i < inputs->query_count; i++) {
        const int64_t query = query_at(inputs, i);
        const int64_t slots =
            query / forward->tokens == batch ? count_slots(inputs, query, row, scratch) : 0;
        if (slots == 0)
            continue;
        if (!loaded)
            load_key(inputs, batch, row, scratch->keys);
        loaded = 1;
        squares += add_query(inputs, query, slots, scratch, dkv, &max_abs);
    }
    if (results->spread)
        results->spread[position] = sqrt(squares);
    if (results->cancelled)
        results->cancelled[position] = norm(scratch->terms, dqk);
    if (results->max_abs)
        results->max_abs[position] = max_abs;
}

int smelt__sparse_attn_dkv(const struct smelt__sparse_attn_spec *spec,
                           const smelt_sparse_attn_grad_args *args, const int64_t *queries,
                           int64_t query_count, const int64_t *keys, int64_t key_count,
                           const struct smelt__sparse_attn_row_grads *results) {
    const struct inputs inputs = inputs_of(spec, args, queries, query_count);
    struct scratch scratch;
    if (scratch_allocate(&scratch, &inputs, 1) != 0)
        return -1;
    for (int64_t i = 0; i < key_count; i++)
        compute_key(&inputs, keys[i], i, &scratch, results);
    scratch_free(&scratch);
    return 0;
}

/* ---- dsink ----------------------------------------------------------------------------------- */

int smelt__sparse_attn_dsink(const struct smelt__sparse_attn_spec *spec,
                             const smelt_sparse_attn_grad_args *args, const int64_t *queries,
                             int64_t query_count, int head, double *dsink, double *terms) {
    const struct inputs inputs = inputs_of(spec, args, queries, query_count);
    const double sink = (double)((const float *)args->sink.data)[head];
    double sum = 0, sizes = 0;
    struct smelt__sparse_attn_spec one =
        *spec; /* whether there is a valid slot is all that counts */
    struct scratch scratch;
    one.topk = 1;
    if (scratch_allocate(&scratch, &inputs, 0) != 0)
        return -1;
    for (int64_t i = 0; i < query_count; i++) {
        const int64_t query = query_at(&inputs, i);
        if (smelt__sparse_attn_valid_rows(&one, &inputs.forward, query, NULL) == 0)
            continue;
        load_head(&inputs, query, head, &scratch.head);
        /* A sink of +inf takes all. */
        const double share = isinf(sink) && sink > 0 ? 1 : exp(sink - scratch.head.denominator);
        sum -= scratch.head.delta * share;
        sizes += scratch.head.delta_terms * share;
    }
    scratch_free(&scratch);
    *dsink = sum;
    if (terms)
        *terms = sizes;
    return 0;
}
