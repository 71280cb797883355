/* sparse_gqa_scores: see operators.h. */
#include <math.h>
#include <stdlib.h>

#include "reference/operators.h"
#include "reference/vectors.h"

struct smelt__sparse_gqa_spec
smelt__sparse_gqa_scores_attention(const struct smelt__sparse_gqa_scores_spec *spec) {
    return (struct smelt__sparse_gqa_spec){.heads = spec->heads,
                                           .kv_heads = spec->kv_heads,
                                           .dqk = spec->dqk,
                                           .dv = spec->dqk,
                                           .topk = spec->topk,
                                           .granularity = spec->granularity,
                                           .lists = spec->lists,
                                           .sink = spec->sink};
}

smelt_sparse_gqa_args
smelt__sparse_gqa_scores_attention_args(const smelt_sparse_gqa_scores_args *args) {
    smelt_sparse_gqa_args attention = SMELT_SPARSE_GQA_ARGS_INIT;
    attention.batches = args->batches;
    attention.tokens = args->tokens;
    attention.rows = args->rows;
    attention.width = args->width;
    attention.scale = args->scale;
    attention.q = args->q;
    attention.k = args->k;
    attention.indices = args->indices;
    attention.topk_length = args->topk_length;
    attention.limit = args->limit;
    attention.sink = args->sink;
    attention.queries = args->queries;
    attention.query_count = args->query_count;
    attention.query_capacity = args->query_capacity;
    return attention;
}

/* A query's head: its row of q, and scratch for a key. */
struct head {
    double *q, *key; /* [dqk] */
    int64_t batch, kv_head;
};

static void load_head(const struct smelt__sparse_gqa_spec *spec, const smelt_sparse_gqa_args *args,
                      int64_t query, int number, struct head *head) {
    head->batch = query / args->tokens;
    head->kv_head = number / (spec->heads / spec->kv_heads);
    smelt__widen((const uint16_t *)args->q.data + head->batch * args->q.strides[0] +
                     query % args->tokens * args->q.strides[1] + number * args->q.strides[2],
                 spec->dqk, head->q);
}

static double score_of(const struct smelt__sparse_gqa_spec *spec, const smelt_sparse_gqa_args *args,
                       const struct head *head, int64_t row) {
    smelt__widen((const uint16_t *)args->k.data + head->batch * args->k.strides[0] +
                     row * args->k.strides[1] + head->kv_head * args->k.strides[2],
                 spec->dqk, head->key);
    return (double)args->scale * smelt__dot(head->q, head->key, spec->dqk);
}

int smelt__sparse_gqa_scores_lse(const struct smelt__sparse_gqa_spec *spec,
                                 const smelt_sparse_gqa_args *args, int64_t query, double *lse) {
    const int64_t lists = smelt__sparse_gqa_list_count(spec);
    const size_t most = (size_t)(args->width * spec->granularity) + 1, dqk = (size_t)spec->dqk;
    int64_t *const rows = malloc(most * sizeof *rows);
    double *const memory = malloc((2 * dqk + most) * sizeof *memory);
    struct head head = {memory, memory + dqk, 0, 0};
    for (int number = 0; rows && memory && number < spec->heads; number++) {
        double highest = -INFINITY, sum = 0, *const scores = memory + 2 * dqk;
        load_head(spec, args, query, number, &head);
        const int64_t count =
            smelt__sparse_gqa_rows(spec, args, query, lists > 1 ? head.kv_head : 0, rows);
        for (int64_t i = 0; i < count; i++)
            highest = fmax(highest, scores[i] = score_of(spec, args, &head, rows[i]));
        for (int64_t i = 0; i < count; i++)
            sum += exp(scores[i] - highest);
        lse[number] = count > 0 ? highest + log(sum) : -INFINITY;
    }
    const int failed = !rows || !memory;
    free(rows);
    free(memory);
    return failed ? -1 : 0;
}

static double lse_at(const smelt_sparse_gqa_scores_args *args, int64_t query, int head) {
    const int64_t *const strides = args->lse.strides;
    return (double)((const float *)
                        args->lse.data)[query / args->tokens * strides[0] +
                                        query % args->tokens * strides[1] + head * strides[2]];
}

int smelt__sparse_gqa_scores_reference(const struct smelt__sparse_gqa_scores_spec *spec,
                                       const smelt_sparse_gqa_scores_args *args, int64_t query,
                                       int64_t list, double *target, double *max_abs) {
    const struct smelt__sparse_gqa_spec attention = smelt__sparse_gqa_scores_attention(spec);
    const smelt_sparse_gqa_args inputs = smelt__sparse_gqa_scores_attention_args(args);
    const int heads = (int)(spec->heads / smelt__sparse_gqa_list_count(&attention));
    const int32_t *const entries = smelt__sparse_gqa_list(&inputs, query, list);
    const int64_t slots = smelt__sparse_gqa_slots(&inputs, query, list);
    const int64_t limit = smelt__sparse_gqa_limit(&inputs, query), r = spec->granularity;
    double *const memory = malloc(2 * (size_t)spec->dqk * sizeof *memory);
    struct head head = {memory, memory + spec->dqk, 0, 0};
    if (!memory)
        return -1;
    *max_abs = 0;
    for (int64_t i = 0; i < args->width; i++)
        target[i] = 0;
    for (int number = (int)list * heads; number < ((int)list + 1) * heads; number++) {
        const double denominator =
            smelt__sparse_gqa_denominator(&attention, &inputs, number, lse_at(args, query, number));
        load_head(&attention, &inputs, query, number, &head);
        for (int64_t i = 0; i < slots; i++)
            for (int64_t row = entries[i] * r;
                 entries[i] >= 0 && row < (entries[i] + 1) * r && row < limit; row++) {
                const double score = score_of(&attention, &inputs, &head, row);
                target[i] += exp(score - denominator);
                *max_abs = fmax(*max_abs, fabs(score));
            }
    }
    free(memory);
    return 0;
}
