#include "reference/operators.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/vectors.h"

void smelt__sparse_attn_resolve_strides(const struct smelt__sparse_attn_spec *spec,
                                        smelt_sparse_attn_args *args) {
    int64_t heads = spec->heads, dqk = spec->dqk, dv = spec->dv;
    if (args->q.strides[0] == 0 && args->q.strides[1] == 0 && args->q.strides[2] == 0) {
        args->q.strides[2] = dqk;
        args->q.strides[1] = heads * dqk;
        args->q.strides[0] = args->tokens * heads * dqk;
    }
    if (args->kv.strides[0] == 0 && args->kv.strides[1] == 0) {
        args->kv.strides[1] = dqk;
        args->kv.strides[0] = args->rows * dqk;
    }
    if (args->indices.strides[0] == 0 && args->indices.strides[1] == 0) {
        args->indices.strides[1] = args->width;
        args->indices.strides[0] = args->tokens * args->width;
    }
    if (args->topk_length.strides[0] == 0 && args->topk_length.strides[1] == 0) {
        args->topk_length.strides[1] = 1;
        args->topk_length.strides[0] = args->tokens;
    }
    if (args->out.strides[0] == 0 && args->out.strides[1] == 0 && args->out.strides[2] == 0) {
        args->out.strides[2] = dv;
        args->out.strides[1] = heads * dv;
        args->out.strides[0] = args->tokens * heads * dv;
    }
    if (args->lse.strides[0] == 0 && args->lse.strides[1] == 0 && args->lse.strides[2] == 0) {
        args->lse.strides[2] = 1;
        args->lse.strides[1] = heads;
        args->lse.strides[0] = args->tokens * heads;
    }
    int64_t *high = args->max_logits.strides;
    if (high[0] == 0 && high[1] == 0 && high[2] == 0) {
        high[2] = 1;
        high[1] = heads;
        high[0] = args->tokens * heads;
    }
}

/* From here on the strides of `args` are resolved. */
static int64_t valid_rows(const struct smelt__sparse_attn_spec *spec,
                          const smelt_sparse_attn_args *args, int64_t query, int64_t *rows) {
    int64_t batch = query / args->tokens, token = query % args->tokens;
    const int32_t *indices = args->indices.data, *lengths = args->topk_length.data;
    indices += batch * args->indices.strides[0] + token * args->indices.strides[1];
    int64_t length = args->width;
    if (lengths) {
        int64_t given =
            lengths[batch * args->topk_length.strides[0] + token * args->topk_length.strides[1]];
        length = given < length ? given : length;
    }
    int64_t count = 0;
    for (int64_t i = 0; i < length && count < spec->topk; i++) {
        if (indices[i] < 0 || indices[i] >= args->rows)
            continue;
        if (rows)
            rows[count] = indices[i];
        count++;
    }
    return count;
}

int64_t smelt__sparse_attn_valid_rows(const struct smelt__sparse_attn_spec *spec,
                                      const smelt_sparse_attn_args *args, int64_t query,
                                      int64_t *rows) {
    smelt_sparse_attn_args resolved = *args;
    smelt__sparse_attn_resolve_strides(spec, &resolved);
    return valid_rows(spec, &resolved, query, rows);
}

/* A thread's memory for one query. */
struct scratch {
    int64_t *rows;  /* [width] */
    double *keys;   /* [valid, dqk] */
    double *q;      /* [dqk] */
    double *scores; /* [valid] */
    double *out;    /* [dv] */
    double *terms;  /* [dv] */
};

static void scratch_free(struct scratch *scratch) {
    free(scratch->rows);
    free(scratch->keys);
    free(scratch->q);
    free(scratch->scores);
    free(scratch->out);
    free(scratch->terms);
}

static int scratch_allocate(struct scratch *scratch, const struct smelt__sparse_attn_spec *spec,
                            int64_t width) {
    size_t slots = width > 0 ? (size_t)width : 1, dqk = (size_t)spec->dqk, dv = (size_t)spec->dv;
    memset(scratch, 0, sizeof *scratch);
    scratch->rows = malloc(slots * sizeof *scratch->rows);
    scratch->keys = malloc(slots * dqk * sizeof *scratch->keys);
    scratch->q = malloc(dqk * sizeof *scratch->q);
    scratch->scores = malloc(slots * sizeof *scratch->scores);
    scratch->out = malloc(dv * sizeof *scratch->out);
    scratch->terms = malloc(dv * sizeof *scratch->terms);
    if (scratch->rows && scratch->keys && scratch->q && scratch->scores && scratch->out &&
        scratch->terms)
        return 0;
    scratch_free(scratch);
    return -1;
}

/* p = exp(s) / (exp(lse) + exp(sink)) = exp(s - denominator) */
double smelt__sparse_attn_denominator(const struct smelt__sparse_attn_spec *spec,
                                      const smelt_sparse_attn_args *args, int head, double lse) {
    const float *sinks = args->sink.data;
    if (!spec->sink || !sinks)
        return lse;
    const double sink = (double)sinks[head], high = fmax(sink, lse);
    return isinf(high) ? high : high + log(exp(sink - high) + exp(lse - high));
}

struct head_result {
    double lse, max_logit, max_abs;
};

/* One head over `count` > 0 keys: scores, their log-sum-exp, and out = sum of p times the values.
 * Exponentials are relative to the largest score, or a larger sink, so that none overflows. */
static struct head_result attend(const struct smelt__sparse_attn_spec *spec,
                                 const smelt_sparse_attn_args *args, int head, int64_t count,
                                 struct scratch *scratch) {
    struct head_result result = {-INFINITY, -INFINITY, 0};
    for (int64_t i = 0; i < count; i++) {
        double score =
            (double)args->scale * smelt__dot(scratch->q, scratch->keys + i * spec->dqk, spec->dqk);
        scratch->scores[i] = score;
        result.max_logit = fmax(result.max_logit, score);
        result.max_abs = fmax(result.max_abs, fabs(score));
    }
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += exp(scratch->scores[i] - result.max_logit);
    result.lse = result.max_logit + log(sum);
    const double denominator = smelt__sparse_attn_denominator(spec, args, head, result.lse);
    memset(scratch->out, 0, (size_t)spec->dv * sizeof *scratch->out);
    memset(scratch->terms, 0, (size_t)spec->dv * sizeof *scratch->terms);
    for (int64_t i = 0; i < count; i++) {
        double p = exp(scratch->scores[i] - denominator);
        const double *value = scratch->keys + i * spec->dqk;
        for (int d = 0; d < spec->dv; d++) {
            scratch->out[d] += p * value[d];
            scratch->terms[d] += fabs(p * value[d]);
        }
    }
    return result;
}

static void compute_query(const struct smelt__sparse_attn_spec *spec,
                          const smelt_sparse_attn_args *args, int64_t query, int64_t position,
                          struct scratch *scratch,
                          const struct smelt__sparse_attn_results *results) {
    int64_t batch = query / args->tokens, token = query % args->tokens;
    const uint16_t *q =
        (const uint16_t *)args->q.data + batch * args->q.strides[0] + token * args->q.strides[1];
    int64_t count = valid_rows(spec, args, query, scratch->rows);
    const uint16_t *kv = args->kv.data;
    for (int64_t i = 0; i < count; i++)
        smelt__widen(kv + batch * args->kv.strides[0] + scratch->rows[i] * args->kv.strides[1],
                     spec->dqk, scratch->keys + i * spec->dqk);
    double max_abs = 0;
    for (int head = 0; head < spec->heads; head++) {
        struct head_result one = {-INFINITY, -INFINITY, 0};
        if (count > 0) {
            smelt__widen(q + head * args->q.strides[2], spec->dqk, scratch->q);
            one = attend(spec, args, head, count, scratch);
        } else {
            memset(scratch->out, 0, (size_t)spec->dv * sizeof *scratch->out);
            memset(scratch->terms, 0, (size_t)spec->dv * sizeof *scratch->terms);
        }
        int64_t at = position * spec->heads + head;
        if (results->out)
            memcpy(results->out + at * spec->dv, scratch->out,
                   (size_t)spec->dv * sizeof *scratch->out);
        if (results->out_terms)
            memcpy(results->out_terms + at * spec->dv, scratch->terms,
                   (size_t)spec->dv * sizeof *scratch->terms);
        if (results->lse)
            results->lse[at] = one.lse;
        if (results->max_logits)
            results->max_logits[at] = one.max_logit;
        max_abs = fmax(max_abs, one.max_abs);
    }
    if (results->max_abs)
        results->max_abs[position] = max_abs;
}

int smelt__sparse_attn_reference(const struct smelt__sparse_attn_spec *spec,
                                 const smelt_sparse_attn_args *args, const int64_t *queries,
                                 int64_t count, const struct smelt__sparse_attn_results *results) {
    smelt_sparse_attn_args resolved = *args;
    smelt__sparse_attn_resolve_strides(spec, &resolved);
    struct scratch scratch;
    if (scratch_allocate(&scratch, spec, args->width) != 0)
        return -1;
    for (int64_t i = 0; i < count; i++)
        compute_query(spec, &resolved, queries ? queries[i] : i, i, &scratch, results);
    scratch_free(&scratch);
    return 0;
}
