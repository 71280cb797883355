#include "reference/operators.h"

#include <math.h>
#include <stdlib.h>

#include "reference/vectors.h"

void smelt__dense_window(const struct smelt__dense_attention *attention, int64_t query,
                         int64_t *begin, int64_t *end) {
    *begin = ((const int32_t *)attention->window_begin.data)[query];
    *end = ((const int32_t *)attention->window_end.data)[query];
    if (*begin < 0)
        *begin = 0;
    if (*end > attention->rows)
        *end = attention->rows;
    if (*begin >= *end)
        *begin = *end = 0;
}

int smelt__dense_scores(const struct smelt__dense_attention *attention, int64_t query, int head,
                        double *scores) {
    const struct smelt__dense_lse_spec *spec = &attention->spec;
    const int64_t *const q = attention->q.strides, *const k = attention->k.strides;
    const int key_head = head / (spec->heads / spec->kv_heads);
    double *const memory = malloc(2 * (size_t)spec->dqk * sizeof *memory);
    int64_t begin, end;
    if (!memory)
        return -1;
    double *const row = memory, *const key = memory + spec->dqk;
    smelt__widen((const uint16_t *)attention->q.data + query * q[0] + head * q[1], spec->dqk, row);
    smelt__dense_window(attention, query, &begin, &end);
    for (int64_t s = begin; s < end; s++) {
        smelt__widen((const uint16_t *)attention->k.data + s * k[0] + key_head * k[1], spec->dqk,
                     key);
        scores[s - begin] = attention->scale * smelt__dot(row, key, spec->dqk);
    }
    free(memory);
    return 0;
}

int smelt__dense_lse_reference(const struct smelt__dense_lse_spec *spec,
                               const smelt_dense_lse_args *args, int64_t query, int head,
                               double *lse, double *max_abs) {
    const struct smelt__dense_attention attention = {
        *spec,   args->rows,         (double)args->scale, args->q,
        args->k, args->window_begin, args->window_end};
    int64_t begin, end;
    smelt__dense_window(&attention, query, &begin, &end);
    double *const scores = malloc((size_t)(end - begin + 1) * sizeof *scores);
    if (!scores || smelt__dense_scores(&attention, query, head, scores)) {
        free(scores);
        return -1;
    }
    double largest = -INFINITY, sum = 0;
    *max_abs = 0;
    for (int64_t i = 0; i < end - begin; i++) {
        largest = fmax(largest, scores[i]);
        *max_abs = fmax(*max_abs, fabs(scores[i]));
    }
    for (int64_t i = 0; i < end - begin; i++)
        sum += exp(scores[i] - largest);
    *lse = begin < end ? largest + log(sum) : -INFINITY;
    free(scores);
    return 0;
}
