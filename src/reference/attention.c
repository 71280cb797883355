/* The reference of sparse_attn, sparse_scores, sparse_gqa and sparse_gqa_scores: see operators.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/operators.h"
#include "reference/vectors.h"

/* ---- calls ----------------------------------------------------------------------------------- */

/* Sets the strides of a packed tensor [B, rows, heads, columns], or [B, rows, columns]. */
static void pack(int64_t strides[SMELT_TENSOR_STRIDES], int dimensions, int64_t rows, int64_t heads,
                 int64_t columns) {
    if (strides[0] || strides[1] || strides[2])
        return;
    strides[2] = dimensions > 3 ? columns : 0;
    strides[1] = heads * columns;
    strides[0] = rows * heads * columns;
}

void smelt__sparse_attn_resolve_strides(const struct smelt__attention_spec *spec,
                                        smelt_sparse_attn_args *args) {
    pack(args->q.strides, 4, args->tokens, spec->heads, spec->dqk);
    pack(args->kv.strides, 3, args->rows, 1, spec->dqk);
    pack(args->indices.strides, 3, args->tokens, 1, args->width);
    pack(args->topk_length.strides, 3, args->tokens, 1, 1);
    pack(args->out.strides, 4, args->tokens, spec->heads, spec->dv);
    pack(args->lse.strides, 4, args->tokens, spec->heads, 1);
    pack(args->max_logits.strides, 4, args->tokens, spec->heads, 1);
}

/* Completes a call. */
static struct smelt__attention complete(const struct smelt__attention_spec *spec,
                                        struct smelt__attention call) {
    call.spec = *spec;
    call.shared = spec->kv_heads == 0;
    if (call.shared) {
        call.spec.kv_heads = 1;
        call.v = call.k;
    }
    if (spec->granularity == 0)
        call.spec.granularity = 1;
    call.lists = spec->lists == SMELT__LISTS_OF_KV_HEADS ? spec->kv_heads : 1;
    const int64_t heads = spec->heads, kv_heads = call.spec.kv_heads;
    pack(call.q.strides, 4, call.tokens, heads, spec->dqk);
    pack(call.k.strides, 4, call.rows, kv_heads, spec->dqk);
    pack(call.v.strides, 4, call.rows, kv_heads, call.shared ? spec->dqk : spec->dv);
    pack(call.indices.strides, 4, call.tokens, call.lists, call.width);
    pack(call.topk_length.strides, 4, call.tokens, call.lists, 1);
    pack(call.limit.strides, 3, call.tokens, 1, 1);
    pack(call.lse.strides, 4, call.tokens, heads, 1);
    pack(call.out.strides, 4, call.tokens, heads, spec->dv);
    pack(call.grad_out.strides, 4, call.tokens, heads, spec->dv);
    return call;
}

/* `...`: the fields that not all args structs have. */
#define CALL(stem, args_type, ...)                                                                 \
    struct smelt__attention smelt__##stem##_attention(const struct smelt__attention_spec *spec,    \
                                                      const void *of) {                            \
        const args_type *const args = of;                                                          \
        return complete(spec, (struct smelt__attention){.batches = args->batches,                  \
                                                        .tokens = args->tokens,                    \
                                                        .rows = args->rows,                        \
                                                        .width = args->width,                      \
                                                        .query_capacity = args->query_capacity,    \
                                                        .scale = (double)args->scale,              \
                                                        .q = args->q,                              \
                                                        .indices = args->indices,                  \
                                                        .topk_length = args->topk_length,          \
                                                        .sink = args->sink,                        \
                                                        __VA_ARGS__});                             \
    }
#define RESULTS .lse = args->lse, .out = args->out, .grad_out = args->grad_out

CALL(sparse_attn, smelt_sparse_attn_args, .k = args->kv)
CALL(sparse_attn_grad, smelt_sparse_attn_grad_args, .k = args->kv, RESULTS)
CALL(sparse_scores, smelt_sparse_scores_args, .k = args->kv, .lse = args->lse)
CALL(sparse_gqa, smelt_sparse_gqa_args, .k = args->k, .v = args->v, .limit = args->limit)
CALL(sparse_gqa_grad, smelt_sparse_gqa_grad_args, .k = args->k, .v = args->v, .limit = args->limit,
     RESULTS)
CALL(sparse_gqa_scores, smelt_sparse_gqa_scores_args, .k = args->k, .limit = args->limit,
     .lse = args->lse)

/* ---- lists ----------------------------------------------------------------------------------- */

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* A query's number in a tensor of int32, clipped to 0..none; `none` without the tensor. */
static int64_t number_of(const struct smelt__attention *call, const smelt_const_tensor *tensor,
                         int64_t query, int64_t list, int64_t none) {
    const int64_t batch = query / call->tokens, token = query % call->tokens;
    if (!tensor->data)
        return none;
    const int64_t number =
        ((const int32_t *)tensor->data)[batch * tensor->strides[0] + token * tensor->strides[1] +
                                        list * tensor->strides[2]];
    return number < 0 ? 0 : least(number, none);
}

int64_t smelt__attention_limit(const struct smelt__attention *call, int64_t query) {
    return number_of(call, &call->limit, query, 0, call->rows);
}

int64_t smelt__attention_slots(const struct smelt__attention *call, int64_t query, int64_t list) {
    return number_of(call, &call->topk_length, query, list, call->width);
}

const int32_t *smelt__attention_list(const struct smelt__attention *call, int64_t query,
                                     int64_t list) {
    const int64_t *const strides = call->indices.strides;
    return (const int32_t *)call->indices.data + query / call->tokens * strides[0] +
           query % call->tokens * strides[1] + list * strides[2];
}

int64_t smelt__attention_rows(const struct smelt__attention *call, int64_t query, int64_t list,
                              int64_t *rows) {
    const int64_t limit = smelt__attention_limit(call, query), r = call->spec.granularity;
    const int64_t slots = smelt__attention_slots(call, query, list);
    const int32_t *const entries = smelt__attention_list(call, query, list);
    int64_t count = 0, valid = 0;
    for (int64_t i = 0; i < slots && valid < call->spec.topk; i++) {
        const int64_t first = entries[i] * r, end = least(first + r, limit);
        valid += first >= 0 && first < end;
        for (int64_t row = first; first >= 0 && row < end; row++, count++)
            if (rows)
                rows[count] = row;
    }
    return count;
}

/* How often a query's list names the row. */
static int64_t count_row(const struct smelt__attention *call, int64_t query, int64_t list,
                         int64_t row) {
    const int64_t limit = smelt__attention_limit(call, query), r = call->spec.granularity;
    const int64_t slots = smelt__attention_slots(call, query, list);
    const int32_t *const entries = smelt__attention_list(call, query, list);
    int64_t count = 0, valid = 0;
    for (int64_t i = 0; i < slots && valid < call->spec.topk && row < limit; i++) {
        valid += entries[i] >= 0 && entries[i] * r < limit;
        count += entries[i] == row / r;
    }
    return count;
}

/* The list of a KV head. */
static int64_t list_of(const struct smelt__attention *call, int64_t kv_head) {
    return call->lists > 1 ? kv_head : 0;
}

/* ---- a head of a query ----------------------------------------------------------------------- */

double smelt__attention_denominator(const struct smelt__attention *call, int head, double lse) {
    const float *const sinks = call->sink.data;
    if (!call->spec.sink || !sinks)
        return lse;
    const double sink = (double)sinks[head], high = fmax(sink, lse);
    return isinf(high) ? high : high + log(exp(sink - high) + exp(lse - high));
}

/* Widens a row of a tensor [B, rows, heads, columns]. */
static void load(const smelt_const_tensor *tensor, int64_t batch, int64_t row, int64_t head,
                 int columns, double *to) {
    const int64_t *const strides = tensor->strides;
    smelt__widen((const uint16_t *)tensor->data + batch * strides[0] + row * strides[1] +
                     head * strides[2],
                 columns, to);
}

/* The denominator that a head's lse, an input, gives. */
static double given_denominator(const struct smelt__attention *call, int64_t query, int head) {
    const int64_t *const strides = call->lse.strides;
    const float lse =
        ((const float *)call->lse.data)[query / call->tokens * strides[0] +
                                        query % call->tokens * strides[1] + head * strides[2]];
    return smelt__attention_denominator(call, head, (double)lse);
}

/* The memory of one thread. */
struct scratch {
    int64_t *rows;                          /* [width * granularity] */
    double *keys, *values;                  /* [rows, dqk] and [rows, dv] */
    double *scores;                         /* [rows] */
    double *q;                              /* [dqk] */
    double *grad_out, *out;                 /* [dv] */
    double *terms[2];                       /* [dqk] and [dv] */
    double delta, delta_terms, denominator; /* of a head */
};

/* For `rows` keys at once. */
static int scratch_allocate(struct scratch *scratch, const struct smelt__attention *call,
                            int64_t rows) {
    const size_t all = (size_t)(call->width * call->spec.granularity) + 1,
                 at_once = (size_t)rows + 1;
    const size_t dqk = (size_t)call->spec.dqk, dv = (size_t)call->spec.dv;
    scratch->rows = malloc(all * sizeof *scratch->rows);
    scratch->keys = malloc((at_once * (dqk + dv + 1) + 2 * dqk + 3 * dv) * sizeof *scratch->keys);
    if (!scratch->rows || !scratch->keys) {
        free(scratch->rows);
        free(scratch->keys);
        return -1;
    }
    scratch->values = scratch->keys + at_once * dqk;
    scratch->scores = scratch->values + at_once * dv;
    scratch->q = scratch->scores + at_once;
    scratch->terms[0] = scratch->q + dqk;
    scratch->terms[1] = scratch->terms[0] + dqk;
    scratch->grad_out = scratch->terms[1] + dv;
    scratch->out = scratch->grad_out + dv;
    return 0;
}

static void scratch_free(struct scratch *scratch) {
    free(scratch->rows);
    free(scratch->keys);
}

/* Loads a KV head's rows of a query's list, the values only if asked; returns their number. */
static int64_t load_rows(const struct smelt__attention *call, int64_t query, int64_t kv_head,
                         int values, struct scratch *scratch) {
    const struct smelt__attention_spec *const spec = &call->spec;
    const int64_t batch = query / call->tokens;
    const int64_t count = smelt__attention_rows(call, query, list_of(call, kv_head), scratch->rows);
    for (int64_t i = 0; i < count; i++) {
        load(&call->k, batch, scratch->rows[i], kv_head, spec->dqk, scratch->keys + i * spec->dqk);
        if (values)
            load(&call->v, batch, scratch->rows[i], kv_head, spec->dv,
                 scratch->values + i * spec->dv);
    }
    return count;
}

/* ---- forward --------------------------------------------------------------------------------- */

static int reads_values(const struct smelt__attention_results *results) {
    return results->out || results->out_terms;
}

/* One head, number `at` of the results, over `count` > 0 keys. Exponentials are relative to the largest
 * score, or a larger sink, so that none overflows. */
static void attend(const struct smelt__attention *call, int head, int64_t count,
                   struct scratch *scratch, int64_t at,
                   const struct smelt__attention_results *results, double *max_abs) {
    const int dqk = call->spec.dqk, dv = call->spec.dv;
    double *const scores = scratch->scores, highest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < count; i++) {
        scores[i] = call->scale * smelt__dot(scratch->q, scratch->keys + i * dqk, dqk);
        highest = fmax(highest, scores[i]);
        *max_abs = fmax(*max_abs, fabs(scores[i]));
    }
    for (int64_t i = 0; i < count; i++)
        sum += exp(scores[i] - highest);
    const double lse = highest + log(sum);
    const double denominator = smelt__attention_denominator(call, head, lse);
    if (results->lse)
        results->lse[at] = lse;
    if (results->max_logits)
        results->max_logits[at] = highest;
    for (int64_t i = 0; reads_values(results) && i < count; i++) {
        const double p = exp(scores[i] - denominator);
        const double *const value = scratch->values + i * dv;
        for (int d = 0; d < dv; d++) {
            if (results->out)
                results->out[at * dv + d] += p * value[d];
            if (results->out_terms)
                results->out_terms[at * dv + d] += fabs(p * value[d]);
        }
    }
}

/* The results of a query without a key. */
static void clear(const struct smelt__attention *call, int64_t position,
                  const struct smelt__attention_results *results) {
    const size_t heads = (size_t)call->spec.heads, dv = (size_t)call->spec.dv;
    const size_t first = (size_t)position * heads;
    if (results->out)
        memset(results->out + first * dv, 0, heads * dv * sizeof *results->out);
    if (results->out_terms)
        memset(results->out_terms + first * dv, 0, heads * dv * sizeof *results->out_terms);
    for (size_t head = first; head < first + heads; head++) {
        if (results->lse)
            results->lse[head] = -INFINITY;
        if (results->max_logits)
            results->max_logits[head] = -INFINITY;
    }
}

int smelt__attention_forward(const struct smelt__attention *call, const int64_t *queries,
                             int64_t query_count, const struct smelt__attention_results *results) {
    const int heads = call->spec.heads, group = heads / call->spec.kv_heads;
    struct scratch scratch;
    if (scratch_allocate(&scratch, call, call->width * call->spec.granularity) != 0)
        return -1;
    for (int64_t i = 0; i < query_count; i++) {
        const int64_t query = queries ? queries[i] : i;
        int64_t count = 0;
        double max_abs = 0;
        clear(call, i, results);
        for (int head = 0; head < heads; head++) {
            if (head % group == 0)
                count = load_rows(call, query, head / group, reads_values(results), &scratch);
            if (count == 0)
                continue;
            load(&call->q, query / call->tokens, query % call->tokens, head, call->spec.dqk,
                 scratch.q);
            attend(call, head, count, &scratch, i * heads + head, results, &max_abs);
        }
        if (results->max_abs)
            results->max_abs[i] = max_abs;
    }
    scratch_free(&scratch);
    return 0;
}

/* ---- backward -------------------------------------------------------------------------------- */

static void load_head(const struct smelt__attention *call, int64_t query, int head,
                      struct scratch *scratch) {
    const int64_t b = query / call->tokens, t = query % call->tokens;
    const int dv = call->spec.dv;
    load(&call->q, b, t, head, call->spec.dqk, scratch->q);
    load(&call->grad_out, b, t, head, dv, scratch->grad_out);
    load(&call->out, b, t, head, dv, scratch->out);
    scratch->delta = smelt__dot(scratch->out, scratch->grad_out, dv);
    scratch->delta_terms = smelt__dot_of_sizes(scratch->out, scratch->grad_out, dv);
    scratch->denominator = given_denominator(call, query, head);
}

/* A head and a row that its query's list names. */
struct pair {
    double score, p, ds;
    double ds_terms; /* as in `cancelled`: at least |ds| */
};

static struct pair pair_of(const struct smelt__attention *call, const struct scratch *head,
                           const double *key, const double *value) {
    const int dqk = call->spec.dqk, dv = call->spec.dv;
    const double score = call->scale * smelt__dot(head->q, key, dqk);
    const double p = exp(score - head->denominator);
    const double dp = smelt__dot(head->grad_out, value, dv);
    const double terms = smelt__dot_of_sizes(head->grad_out, value, dv) + head->delta_terms;
    return (struct pair){score, p, call->scale * p * (dp - head->delta), call->scale * p * terms};
}

/* A gradient's row while it is summed. */
struct sum {
    double *row, *terms; /* [columns] */
    int columns;
    double squares;
};

static struct sum sum_begin(double *row, double *terms, int columns) {
    memset(row, 0, (size_t)columns * sizeof *row);
    memset(terms, 0, (size_t)columns * sizeof *terms);
    return (struct sum){row, terms, columns, 0};
}

/* Adds factor * row[columns]; `size`: the sum of the absolute values of the factor's terms. */
static void add_row(struct sum *sum, double factor, double size, const double *row, int columns) {
    for (int i = 0; i < columns; i++) {
        sum->row[i] += factor * row[i];
        sum->terms[i] += size * fabs(row[i]);
    }
    sum->squares += factor * factor * smelt__dot(row, row, columns);
}

/* Row `at` of the results. */
static void sum_end(const struct sum *sum, int64_t at, const struct smelt__row_grads *results) {
    if (results->spread)
        results->spread[at] = sqrt(sum->squares);
    if (results->cancelled)
        results->cancelled[at] = sqrt(smelt__dot(sum->terms, sum->terms, sum->columns));
}

int smelt__attention_dq(const struct smelt__attention *call, const int64_t *queries,
                        int64_t query_count, const struct smelt__row_grads *results) {
    const int heads = call->spec.heads, group = heads / call->spec.kv_heads, dqk = call->spec.dqk;
    struct scratch scratch;
    if (scratch_allocate(&scratch, call, call->width * call->spec.granularity) != 0)
        return -1;
    for (int64_t position = 0; position < query_count; position++) {
        const int64_t query = queries ? queries[position] : position;
        int64_t count = 0;
        double max_abs = 0;
        for (int head = 0; head < heads; head++) {
            const int64_t at = position * heads + head;
            struct sum dq = sum_begin(results->grads + at * dqk, scratch.terms[0], dqk);
            if (head % group == 0)
                count = load_rows(call, query, head / group, 1, &scratch);
            if (count > 0)
                load_head(call, query, head, &scratch);
            for (int64_t i = 0; i < count; i++) {
                const double *const key = scratch.keys + i * dqk;
                const struct pair pair =
                    pair_of(call, &scratch, key, scratch.values + i * call->spec.dv);
                add_row(&dq, pair.ds, pair.ds_terms, key, dqk);
                max_abs = fmax(max_abs, fabs(pair.score));
            }
            sum_end(&dq, at, results);
        }
        if (results->max_abs)
            results->max_abs[position] = max_abs;
    }
    scratch_free(&scratch);
    return 0;
}

/* Key number `position` of a call. */
static void compute_key(const struct smelt__attention *call, const int64_t *queries,
                        int64_t query_count, int64_t key, int64_t position, struct scratch *scratch,
                        const struct smelt__row_grads *dk_results,
                        const struct smelt__row_grads *dv_results) {
    const int kv_heads = call->spec.kv_heads, group = call->spec.heads / kv_heads;
    const int dqk = call->spec.dqk, dv = call->spec.dv;
    const int64_t kv_head = key % kv_heads, row = key / kv_heads % call->rows;
    const int64_t batch = key / kv_heads / call->rows;
    struct sum dk_sum = sum_begin(dk_results->grads + position * dqk, scratch->terms[0], dqk);
    struct sum dv_sum = {0};
    double max_abs = 0;
    int loaded = 0; /* a row that no query names is not read */
    if (!call->shared)
        dv_sum = sum_begin(dv_results->grads + position * dv, scratch->terms[1], dv);
    for (int64_t i = 0; i < query_count; i++) {
        const int64_t query = queries ? queries[i] : i;
        const int64_t slots =
            query / call->tokens == batch ? count_row(call, query, list_of(call, kv_head), row) : 0;
        const double times = (double)slots;
        if (slots > 0 && !loaded++) {
            load(&call->k, batch, row, kv_head, dqk, scratch->keys);
            load(&call->v, batch, row, kv_head, dv, scratch->values);
        }
        for (int64_t head = kv_head * group; slots > 0 && head < (kv_head + 1) * group; head++) {
            load_head(call, query, (int)head, scratch);
            const struct pair pair = pair_of(call, scratch, scratch->keys, scratch->values);
            add_row(&dk_sum, times * pair.ds, times * pair.ds_terms, scratch->q, dqk);
            add_row(call->shared ? &dk_sum : &dv_sum, times * pair.p, times * pair.p,
                    scratch->grad_out, dv);
            max_abs = fmax(max_abs, fabs(pair.score));
        }
    }
    sum_end(&dk_sum, position, dk_results);
    if (!call->shared)
        sum_end(&dv_sum, position, dv_results);
    if (dk_results->max_abs)
        dk_results->max_abs[position] = max_abs;
    if (!call->shared && dv_results->max_abs)
        dv_results->max_abs[position] = max_abs;
}

int smelt__attention_keys(const struct smelt__attention *call, const int64_t *queries,
                          int64_t query_count, const int64_t *keys, int64_t key_count,
                          const struct smelt__row_grads *dk, const struct smelt__row_grads *dv) {
    struct scratch scratch;
    if (scratch_allocate(&scratch, call, 1) != 0)
        return -1;
    for (int64_t i = 0; i < key_count; i++)
        compute_key(call, queries, query_count, keys[i], i, &scratch, dk, dv);
    scratch_free(&scratch);
    return 0;
}

int smelt__attention_dsink(const struct smelt__attention *call, const int64_t *queries,
                           int64_t query_count, int head, double *dsink, double *terms) {
    const double sink = (double)((const float *)call->sink.data)[head];
    const int64_t list = list_of(call, head / (call->spec.heads / call->spec.kv_heads));
    struct smelt__attention one = *call; /* whether there is a valid slot is all that counts */
    double sum = 0, sizes = 0;
    struct scratch scratch;
    one.spec.topk = 1;
    if (scratch_allocate(&scratch, call, 0) != 0)
        return -1;
    for (int64_t i = 0; i < query_count; i++) {
        const int64_t query = queries ? queries[i] : i;
        if (smelt__attention_rows(&one, query, list, NULL) == 0)
            continue;
        load_head(call, query, head, &scratch);
        /* A sink of +inf takes all. */
        const double share = isinf(sink) && sink > 0 ? 1 : exp(sink - scratch.denominator);
        sum -= scratch.delta * share;
        sizes += scratch.delta_terms * share;
    }
    scratch_free(&scratch);
    *dsink = sum;
    if (terms)
        *terms = sizes;
    return 0;
}

/* ---- the target ------------------------------------------------------------------------------ */

/* The sum of a row's probabilities over the heads `first` to `end`. q: [heads, dqk]; key: scratch. */
static double sum_of_heads(const struct smelt__attention *call, int64_t batch, int64_t row,
                           int first, int end, const double *q, const double *denominators,
                           double *key, double *max_abs) {
    const int group = call->spec.heads / call->spec.kv_heads, dqk = call->spec.dqk;
    double sum = 0;
    for (int head = first; head < end; head++) {
        if (head % group == 0)
            load(&call->k, batch, row, head / group, dqk, key);
        const double score = call->scale * smelt__dot(q + (int64_t)head * dqk, key, dqk);
        sum += exp(score - denominators[head]);
        *max_abs = fmax(*max_abs, fabs(score));
    }
    return sum;
}

int smelt__attention_target(const struct smelt__attention *call, int64_t query, int64_t list,
                            double *target, double *max_abs) {
    const int heads = (int)(call->spec.heads / call->lists), first = (int)list * heads;
    const int64_t batch = query / call->tokens, r = call->spec.granularity;
    const int64_t limit = smelt__attention_limit(call, query);
    const int64_t slots = smelt__attention_slots(call, query, list);
    const int32_t *const entries = smelt__attention_list(call, query, list);
    const size_t all = (size_t)call->spec.heads, dqk = (size_t)call->spec.dqk;
    double *const memory = malloc((all * (dqk + 1) + dqk) * sizeof *memory);
    double *const denominators = memory + all * dqk, *const key = denominators + all;
    if (!memory)
        return -1;
    for (int head = first; head < first + heads; head++) {
        load(&call->q, batch, query % call->tokens, head, call->spec.dqk,
             memory + (size_t)head * dqk);
        denominators[head] = given_denominator(call, query, head);
    }
    *max_abs = 0;
    for (int64_t i = 0; i < call->width; i++) {
        target[i] = 0;
        for (int64_t k = 0; i < slots && entries[i] >= 0 && k < r && entries[i] * r + k < limit;
             k++)
            target[i] += sum_of_heads(call, batch, entries[i] * r + k, first, first + heads, memory,
                                      denominators, key, max_abs);
    }
    free(memory);
    return 0;
}
