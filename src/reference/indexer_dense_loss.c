#include "reference/operators.h"

#include <math.h>
#include <stdlib.h>

struct smelt__indexer_bwd_spec
smelt__indexer_dense_loss_indexer(const struct smelt__indexer_dense_loss_spec *spec) {
    return (struct smelt__indexer_bwd_spec){.heads = spec->index_heads,
                                            .dim = spec->index_dim,
                                            .activation = spec->activation,
                                            .granularity = 1,
                                            .deterministic = spec->deterministic,
                                            .weights_dtype = spec->weights_dtype};
}

smelt_indexer_bwd_args
smelt__indexer_dense_loss_gradients(const smelt_indexer_dense_loss_args *args) {
    smelt_indexer_bwd_args gradients = SMELT_INDEXER_BWD_ARGS_INIT;
    gradients.tokens = args->tokens;
    gradients.rows = args->rows;
    gradients.width = args->rows;
    gradients.q = args->index_q;
    gradients.k = args->index_k;
    gradients.weights = args->index_weights;
    return gradients;
}

/* The sum over the heads of attention's probabilities: target[rows], 0 outside the window. */
static int add_targets(const struct smelt__indexer_dense_loss_spec *spec,
                       const smelt_indexer_dense_loss_args *args, int64_t query, double *scores,
                       double *target) {
    const struct smelt__dense_attention attention = {{spec->heads, spec->dqk, spec->kv_heads},
                                                     args->rows,
                                                     (double)args->scale,
                                                     args->q,
                                                     args->k,
                                                     args->window_begin,
                                                     args->window_end};
    int64_t begin, end;
    smelt__dense_window(&attention, query, &begin, &end);
    for (int64_t s = 0; s < args->rows; s++)
        target[s] = 0;
    for (int head = 0; head < spec->heads; head++) {
        const double lse =
            (double)((const float *)args->lse
                         .data)[query * args->lse.strides[0] + head * args->lse.strides[1]];
        if (smelt__dense_scores(&attention, query, head, scores))
            return -1;
        for (int64_t s = begin; s < end; s++)
            target[s] += exp(scores[s - begin] - lse);
    }
    return 0;
}

/* The logits, and the largest of their terms. */
static int find_logits(const struct smelt__indexer_dense_loss_spec *spec,
                       const smelt_indexer_dense_loss_args *args, int64_t query, double *logits,
                       double *terms, double *largest) {
    const struct smelt__indexer_logits_spec indexer = {.heads = spec->index_heads,
                                                       .dim = spec->index_dim,
                                                       .dtype = SMELT__DTYPE_BF16,
                                                       .activation = spec->activation,
                                                       .weights = 1,
                                                       .groups = 1,
                                                       .block_max = 1,
                                                       .weights_dtype = spec->weights_dtype};
    smelt_indexer_logits_args scored = SMELT_INDEXER_LOGITS_ARGS_INIT;
    scored.tokens = args->tokens;
    scored.rows = args->rows;
    scored.q = args->index_q;
    scored.k = args->index_k;
    scored.weights = args->index_weights;
    scored.window_begin = args->window_begin;
    scored.window_end = args->window_end;
    if (smelt__indexer_logits_reference(&indexer, &scored, query, logits, terms))
        return -1;
    *largest = 0;
    for (int64_t s = 0; s < args->rows; s++)
        *largest = fmax(*largest, terms[s]);
    return 0;
}

/* Loss and gradient of a row of logits and targets. */
static void find_loss(const smelt_indexer_dense_loss_args *args, int64_t query, const float *logits,
                      const float *target, struct smelt__indexer_dense_loss_query *result) {
    smelt_indexer_loss_args loss = SMELT_INDEXER_LOSS_ARGS_INIT;
    loss.tokens = args->tokens;
    loss.rows = loss.width = args->rows;
    loss.query_weight = args->query_weight;
    loss.weight = args->weight;
    loss.grad_loss = args->grad_loss;
    loss.logits.data = logits; /* strides of 0: the row is every query's */
    loss.target.data = target;
    loss.indices.data = result->keys;
    result->found = smelt__indexer_loss_reference(&loss, query, result->q, result->p, result->grad);
}

int smelt__indexer_dense_loss_reference(const struct smelt__indexer_dense_loss_spec *spec,
                                        const smelt_indexer_dense_loss_args *args, int64_t query,
                                        struct smelt__indexer_dense_loss_query *result) {
    const int32_t *const begins = args->window_begin.data, *const ends = args->window_end.data;
    const size_t rows = (size_t)args->rows;
    double *const numbers = malloc((2 * rows + 1) * sizeof *numbers);
    float *const floats = malloc((2 * rows + 1) * sizeof *floats);
    double *const values = numbers, *const scratch = numbers + rows;
    int failed = !numbers || !floats;
    if (!failed)
        failed = find_logits(spec, args, query, values, scratch, &result->terms);
    for (size_t s = 0; s < rows && !failed; s++) {
        floats[s] = (float)values[s];
        result->keys[s] = (int64_t)s >= begins[query] && (int64_t)s < ends[query] ? (int32_t)s : -1;
    }
    if (!failed)
        failed = add_targets(spec, args, query, scratch, values);
    for (size_t s = 0; s < rows && !failed; s++)
        floats[rows + s] = (float)values[s];
    if (!failed)
        find_loss(args, query, floats, floats + rows, result);
    free(numbers);
    free(floats);
    return failed ? -1 : 0;
}
