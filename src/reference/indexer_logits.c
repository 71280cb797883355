#include "reference/operators.h"

#include <math.h>
#include <stdlib.h>

#include "reference/e4m3.h"
#include "reference/vectors.h"

/* A row of q or k from element number `first` on. */
static void widen(const struct smelt__indexer_query *query, const void *data, int64_t first,
                  double *to) {
    if (query->dtype == SMELT__DTYPE_BF16) {
        smelt__widen((const uint16_t *)data + first, query->dim, to);
        return;
    }
    for (int d = 0; d < query->dim; d++)
        to[d] = (double)smelt__e4m3_to_float(((const uint8_t *)data)[first + d]);
}

int smelt__indexer_query_open(struct smelt__indexer_query *opened, int heads, int dim, int dtype,
                              const smelt_const_tensor *q, const smelt_const_tensor *weights,
                              int64_t query) {
    *opened = (struct smelt__indexer_query){
        .heads = heads,
        .dim = dim,
        .dtype = dtype,
        .q = malloc((size_t)(heads + 1) * (size_t)dim * sizeof *opened->q),
        .weights = (const float *)weights->data + query * weights->strides[0],
    };
    if (!opened->q)
        return -1;
    opened->key = opened->q + (int64_t)heads * dim;
    for (int h = 0; h < heads; h++)
        widen(opened, q->data, query * q->strides[0] + h * q->strides[1],
              opened->q + (int64_t)h * dim);
    return 0;
}

void smelt__indexer_query_close(struct smelt__indexer_query *opened) {
    free(opened->q);
}

/* Whether cutting a sum off, or rounding `products` numbers of it to what fp32 has near 0, may make
 * it 0 or turn its sign, and `factor` makes that an infinity. */
static int is_undecided(const struct smelt__indexer_query *query, double sum, double terms,
                        int products, double factor) {
    return query->dtype == SMELT__DTYPE_FP8 && isinf(factor) && terms > 0 &&
           fabs(sum) <= SMELT__E4M3_SUM_TOLERANCE * terms + products * SMELT__FP32_UNDERFLOW;
}

double smelt__indexer_logit(const struct smelt__indexer_query *query, const smelt_const_tensor *k,
                            int64_t key, double scale, double *terms) {
    double sum = 0, decided = 0; /* decided: of the heads that no cutting off can change */
    double counted = 0;          /* terms of those that are not below 0 for sure */
    int products = 0;            /* how many these are: the others add a 0, which is exact */
    int undecided = 0;
    *terms = 0;
    widen(query, k->data, key * k->strides[0], query->key);
    for (int h = 0; h < query->heads; h++) {
        const double weight = (double)query->weights[h];
        const double *const row = query->q + (int64_t)h * query->dim;
        const double dot = smelt__dot(row, query->key, query->dim);
        const double sizes = smelt__dot_of_sizes(row, query->key, query->dim);
        const double term = weight * (dot < 0 ? 0 : dot); /* NaN stays */
        const int below = dot < -SMELT__E4M3_SUM_TOLERANCE * sizes;
        /* A product of e4m3 is a multiple of 2^-18: no sum of them is too small for fp32. */
        const int open = is_undecided(query, dot, sizes, 0, weight);
        sum += term;
        decided += open ? 0 : term;
        undecided |= open;
        counted += below ? 0 : fabs(weight) * sizes;
        products += !below;
        *terms += fabs(weight) * sizes;
    }
    undecided |= is_undecided(query, sum, counted, products, scale);
    *terms = undecided && !isnan(decided) && !isnan(scale) ? -INFINITY : *terms * fabs(scale);
    sum *= scale;
    return isnan(sum) ? -INFINITY : sum + 0.0; /* never -0 */
}

int smelt__indexer_logit_fits(double got, double logit, double terms) {
    if (isinf(logit) && !(terms < 0))
        return got == logit;
    return isinf(logit) ? isinf(got) : isfinite(got);
}

int smelt__indexer_logits_reference(const struct smelt__indexer_logits_spec *spec,
                                    const smelt_indexer_logits_args *args, int64_t query,
                                    double *logits, double *terms) {
    const int32_t *const begins = args->window_begin.data, *const ends = args->window_end.data;
    const float *const scales = args->k_scale.data;
    struct smelt__indexer_query opened;
    const int failed = smelt__indexer_query_open(&opened, spec->heads, spec->dim, spec->dtype,
                                                 &args->q, &args->weights, query);
    for (int64_t s = 0; s < args->rows && !failed; s++) {
        double size = 0;
        logits[s] = -INFINITY;
        if (s >= begins[query] && s < ends[query])
            logits[s] =
                smelt__indexer_logit(&opened, &args->k, s, scales ? (double)scales[s] : 1, &size);
        if (terms)
            terms[s] = size;
    }
    smelt__indexer_query_close(&opened);
    return failed;
}
