#include "reference/operators.h"

#include <math.h>
#include <stdlib.h>

#include "reference/vectors.h"

struct smelt__sparse_attn_spec
smelt__sparse_scores_attention(const struct smelt__sparse_scores_spec *spec) {
    return (struct smelt__sparse_attn_spec){.heads = spec->heads,
                                            .dqk = spec->dqk,
                                            .dv = spec->dv,
                                            .topk = spec->topk,
                                            .sink = spec->sink};
}

smelt_sparse_attn_args smelt__sparse_scores_attention_args(const smelt_sparse_scores_args *args) {
    smelt_sparse_attn_args attention = SMELT_SPARSE_ATTN_ARGS_INIT;
    attention.batches = args->batches;
    attention.tokens = args->tokens;
    attention.rows = args->rows;
    attention.width = args->width;
    attention.scale = args->scale;
    attention.q = args->q;
    attention.kv = args->kv;
    attention.indices = args->indices;
    attention.topk_length = args->topk_length;
    attention.sink = args->sink;
    attention.queries = args->queries;
    attention.query_count = args->query_count;
    attention.query_capacity = args->query_capacity;
    return attention;
}

/* A head's log-sum-exp. */
static double lse_at(const struct smelt__sparse_scores_spec *spec,
                     const smelt_sparse_scores_args *args, int64_t query, int head) {
    const int64_t *strides = args->lse.strides;
    const int packed = strides[0] == 0 && strides[1] == 0 && strides[2] == 0;
    const int64_t at = packed ? query * spec->heads + head
                              : query / args->tokens * strides[0] +
                                    query % args->tokens * strides[1] + head * strides[2];
    return (double)((const float *)args->lse.data)[at];
}

/* What one query has: its heads' rows of Q and denominators. */
struct query {
    double *q;            /* [H, dqk] */
    double *denominators; /* [H]: p = exp(s - denominator) */
    double *key;          /* [dqk] */
};

static void load_query(const struct smelt__sparse_scores_spec *spec,
                       const smelt_sparse_scores_args *args,
                       const smelt_sparse_attn_args *attention, int64_t number,
                       struct query *query) {
    const struct smelt__sparse_attn_spec attention_spec = smelt__sparse_scores_attention(spec);
    const uint16_t *q = attention->q.data;
    q += number / args->tokens * attention->q.strides[0] +
         number % args->tokens * attention->q.strides[1];
    for (int head = 0; head < spec->heads; head++) {
        smelt__widen(q + head * attention->q.strides[2], spec->dqk,
                     query->q + (int64_t)head * spec->dqk);
        query->denominators[head] = smelt__sparse_attn_denominator(
            &attention_spec, attention, head, lse_at(spec, args, number, head));
    }
}

/* The sum over the heads of a row's probabilities. */
static double sum_of_heads(const struct smelt__sparse_scores_spec *spec, double scale,
                           const uint16_t *row, struct query *query, double *max_abs) {
    double sum = 0;
    smelt__widen(row, spec->dqk, query->key);
    for (int head = 0; head < spec->heads; head++) {
        const double *q = query->q + (int64_t)head * spec->dqk;
        const double score = scale * smelt__dot(q, query->key, spec->dqk);
        sum += exp(score - query->denominators[head]);
        *max_abs = fmax(*max_abs, fabs(score));
    }
    return sum;
}

/* Slots of a query that count. */
static int64_t count_slots(const smelt_sparse_attn_args *attention, int64_t batch, int64_t token) {
    const int32_t *lengths = attention->topk_length.data;
    const int64_t *strides = attention->topk_length.strides;
    const int64_t length =
        lengths ? lengths[batch * strides[0] + token * strides[1]] : attention->width;
    return length < attention->width ? length : attention->width;
}

int smelt__sparse_scores_reference(const struct smelt__sparse_scores_spec *spec,
                                   const smelt_sparse_scores_args *args, int64_t number,
                                   double *target, double *max_abs) {
    const struct smelt__sparse_attn_spec attention_spec = smelt__sparse_scores_attention(spec);
    smelt_sparse_attn_args attention = smelt__sparse_scores_attention_args(args);
    const size_t heads = (size_t)spec->heads, dqk = (size_t)spec->dqk;
    double *memory = malloc((heads * dqk + heads + dqk) * sizeof *memory);
    if (!memory)
        return -1;
    struct query query = {memory, memory + heads * dqk, memory + heads * dqk + heads};
    smelt__sparse_attn_resolve_strides(&attention_spec, &attention);
    load_query(spec, args, &attention, number, &query);
    const int64_t batch = number / args->tokens, token = number % args->tokens;
    const int64_t slots = count_slots(&attention, batch, token);
    const int32_t *indices = attention.indices.data;
    indices += batch * attention.indices.strides[0] + token * attention.indices.strides[1];
    const uint16_t *kv = attention.kv.data;
    *max_abs = 0;
    for (int64_t i = 0; i < args->width; i++) {
        const int valid = i < slots && indices[i] >= 0 && indices[i] < args->rows;
        target[i] = valid ? sum_of_heads(spec, (double)args->scale,
                                         kv + batch * attention.kv.strides[0] +
                                             indices[i] * attention.kv.strides[1],
                                         &query, max_abs)
                          : 0;
    }
    free(memory);
    return 0;
}
