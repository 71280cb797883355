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
static double denominator_of(const struct smelt__sparse_gqa_spec *spec,
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
    const double lse = highest + log(sum), denominator = denominator_of(spec, args, head, lse);
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
