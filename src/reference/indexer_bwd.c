#include "reference/operators.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/vectors.h"

/* The rows that a query may have. */
static int64_t rows_below(const smelt_indexer_bwd_args *args, int64_t query) {
    const int32_t *const limits = args->limit.data;
    const int64_t limit = limits ? limits[query * args->limit.strides[0]] : args->rows;
    return limit < args->rows ? limit : args->rows;
}

int64_t smelt__indexer_bwd_slot(const struct smelt__indexer_bwd_spec *spec,
                                const smelt_indexer_bwd_args *args, int64_t query, int64_t i) {
    const int64_t size = spec->granularity, slot = i / size;
    const int32_t *const lengths = args->topk_length.data;
    const int64_t rows = rows_below(args, query);
    const int64_t entry =
        ((const int32_t *)args->indices.data)[query * args->indices.strides[0] + slot];
    if (lengths && slot >= lengths[query * args->topk_length.strides[0]])
        return -1;
    return entry >= 0 && entry * size + i % size < rows ? entry * size + i % size : -1;
}

static void load_query(const struct smelt__indexer_bwd_spec *spec,
                       const smelt_indexer_bwd_args *args, int64_t query, int head, double *to) {
    smelt__widen((const uint16_t *)args->q.data + query * args->q.strides[0] +
                     head * args->q.strides[1],
                 spec->dim, to);
}

static void load_key(const struct smelt__indexer_bwd_spec *spec, const smelt_indexer_bwd_args *args,
                     int64_t key, double *to) {
    smelt__widen((const uint16_t *)args->k.data + key * args->k.strides[0], spec->dim, to);
}

static double weight_of(const struct smelt__indexer_bwd_spec *spec,
                        const smelt_indexer_bwd_args *args, int64_t query, int head) {
    return smelt__indexer_weight(&args->weights, spec->weights_dtype, query, head);
}

static double grad_of(const smelt_indexer_bwd_args *args, int64_t query, int64_t i) {
    return (double)((const float *)args->grad.data)[query * args->grad.strides[0] + i];
}

/* row += factor * [x > 0] * vector; without ReLU, whatever x is. */
static void add(const struct smelt__indexer_bwd_spec *spec, struct smelt__indexer_bwd_row *row,
                double factor, double x, double x_terms, const double *vector) {
    const double square = smelt__dot(vector, vector, spec->dim);
    const int relu = spec->activation == SMELT__ACTIVATION_RELU;
    if (relu && fabs(x) < SMELT__INDEXER_BWD_DOUBT * x_terms)
        row->doubtful += fabs(factor) * sqrt(square);
    if ((relu && !(x > 0)) || factor == 0)
        return;
    for (int d = 0; d < spec->dim; d++)
        row->grads[d] += factor * vector[d];
    row->spread += factor * factor * square; /* the root is taken at the end */
}

static void clear(struct smelt__indexer_bwd_row *row, int dim) {
    memset(row->grads, 0, (size_t)dim * sizeof *row->grads);
    row->spread = row->doubtful = 0;
}

int smelt__indexer_bwd_head(const struct smelt__indexer_bwd_spec *spec,
                            const smelt_indexer_bwd_args *args, int64_t query, int head,
                            struct smelt__indexer_bwd_row *row, double *dweights, double *terms) {
    const double weight = weight_of(spec, args, query, head);
    double *const q = malloc(2 * (size_t)spec->dim * sizeof *q);
    if (!q)
        return -1;
    double *const k = q + spec->dim;
    load_query(spec, args, query, head, q);
    clear(row, spec->dim);
    *dweights = *terms = 0;
    for (int64_t i = 0; i < args->width * spec->granularity; i++) {
        const int64_t key = smelt__indexer_bwd_slot(spec, args, query, i);
        if (key < 0)
            continue;
        load_key(spec, args, key, k);
        const double grad = grad_of(args, query, i), x = smelt__dot(q, k, spec->dim);
        const double x_terms = smelt__dot_of_sizes(q, k, spec->dim);
        add(spec, row, grad * weight, x, x_terms, k);
        *dweights += grad * (x > 0 || spec->activation != SMELT__ACTIVATION_RELU ? x : 0);
        *terms += fabs(grad) * x_terms;
    }
    row->spread = sqrt(row->spread);
    free(q);
    return 0;
}

/* The sum of the gradients of a query's slots with this key, and their number in *count. */
static double grads_of(const struct smelt__indexer_bwd_spec *spec,
                       const smelt_indexer_bwd_args *args, int64_t query, int64_t key,
                       int64_t *count) {
    const int32_t *const lengths = args->topk_length.data;
    const int32_t *const row =
        (const int32_t *)args->indices.data + query * args->indices.strides[0];
    const int64_t length =
        lengths ? lengths[query * args->topk_length.strides[0]] : (int64_t)args->width;
    const int64_t slots = length < args->width ? length : args->width;
    double sum = 0;
    *count = 0;
    if (key >= rows_below(args, query))
        return 0;
    for (int64_t i = 0; i < slots; i++) /* may be called for all queries, with billions of slots */
        if (row[i] == key / spec->granularity) {
            sum += grad_of(args, query, i * spec->granularity + key % spec->granularity);
            ++*count;
        }
    return sum;
}

int smelt__indexer_bwd_key(const struct smelt__indexer_bwd_spec *spec,
                           const smelt_indexer_bwd_args *args, int64_t key,
                           struct smelt__indexer_bwd_row *row) {
    double *const q = malloc(2 * (size_t)spec->dim * sizeof *q);
    if (!q)
        return -1;
    double *const k = q + spec->dim;
    load_key(spec, args, key, k);
    clear(row, spec->dim);
    for (int64_t query = 0; query < args->tokens; query++) {
        int64_t count;
        const double grad = grads_of(spec, args, query, key, &count);
        for (int head = 0; head < spec->heads && count > 0; head++) {
            load_query(spec, args, query, head, q);
            add(spec, row, grad * weight_of(spec, args, query, head), smelt__dot(q, k, spec->dim),
                smelt__dot_of_sizes(q, k, spec->dim), q);
        }
    }
    row->spread = sqrt(row->spread);
    free(q);
    return 0;
}
