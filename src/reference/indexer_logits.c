/* See indexer_logits.h. */
#include "reference/indexer_logits.h"

#include <math.h>
#include <stdlib.h>

#include "reference/e4m3.h"
#include "reference/vectors.h"

/* `count` elements of q or k from number `first` on. */
static void widen(const smelt_indexer_logits_spec *spec, const void *data, int64_t first,
                  double *to) {
    if (spec->dtype == SMELT_INDEXER_BF16) {
        smelt__widen((const uint16_t *)data + first, spec->dim, to);
        return;
    }
    for (int d = 0; d < spec->dim; d++)
        to[d] = (double)smelt__e4m3_to_float(((const uint8_t *)data)[first + d]);
}

/* One logit; q: [heads, dim]. */
static double one_logit(const smelt_indexer_logits_spec *spec, const double *q, const double *k,
                        const float *weights, double scale, double *terms) {
    double sum = 0;
    *terms = 0;
    for (int h = 0; h < spec->heads; h++) {
        const double weight = (double)weights[h], *row = q + (int64_t)h * spec->dim;
        const double dot = smelt__dot(row, k, spec->dim);
        sum += weight * (dot < 0 ? 0 : dot); /* NaN stays */
        *terms += fabs(weight) * smelt__dot_of_sizes(row, k, spec->dim);
    }
    *terms *= fabs(scale);
    sum *= scale;
    return isnan(sum) ? -INFINITY : sum;
}

int smelt__indexer_logits_reference(const smelt_indexer_logits_spec *spec,
                                    const smelt_indexer_logits_args *args, int64_t query,
                                    double *logits, double *terms) {
    const int32_t *const begins = args->window_begin.data, *const ends = args->window_end.data;
    const float *const weights =
        (const float *)args->weights.data + query * args->weights.strides[0];
    const float *const scales = args->k_scale.data;
    double *const q = malloc((size_t)(spec->heads + 1) * (size_t)spec->dim * sizeof *q);
    if (!q)
        return -1;
    double *const k = q + (int64_t)spec->heads * spec->dim;
    for (int h = 0; h < spec->heads; h++)
        widen(spec, args->q.data, query * args->q.strides[0] + h * args->q.strides[1],
              q + (int64_t)h * spec->dim);
    for (int64_t s = 0; s < args->rows; s++) {
        double size = 0;
        logits[s] = -INFINITY;
        if (s >= begins[query] && s < ends[query]) {
            widen(spec, args->k.data, s * args->k.strides[0], k);
            logits[s] = one_logit(spec, q, k, weights, scales ? (double)scales[s] : 1, &size);
        }
        if (terms)
            terms[s] = size;
    }
    free(q);
    return 0;
}
