#include "reference/operators.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "reference/bf16.h"
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

double smelt__indexer_weight(const smelt_const_tensor *weights, int dtype, int64_t query,
                             int head) {
    const int64_t at = query * weights->strides[0] + head;
    return (double)(dtype == SMELT__WEIGHTS_BF16
                        ? smelt__bf16_to_float(((const uint16_t *)weights->data)[at])
                        : ((const float *)weights->data)[at]);
}

int smelt__indexer_query_open(struct smelt__indexer_query *opened, int heads, int dim, int dtype,
                              int weights_dtype, const smelt_const_tensor *q,
                              const smelt_const_tensor *weights, int64_t query) {
    *opened = (struct smelt__indexer_query){
        .heads = heads,
        .dim = dim,
        .dtype = dtype,
        .q = malloc(((size_t)(heads + 1) * (size_t)dim + (size_t)heads) * sizeof *opened->q),
        .scale = 1,
        .count = heads,
    };
    if (!opened->q)
        return -1;
    opened->key = opened->q + (int64_t)heads * dim;
    if (weights->data)
        opened->weights = opened->key + dim;
    for (int h = 0; h < heads && opened->weights; h++)
        opened->weights[h] = smelt__indexer_weight(weights, weights_dtype, query, h);
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
    for (int h = query->first; h < query->first + query->count; h++) {
        const double weight = query->weights ? query->weights[h] : (double)query->scale;
        const double *const row = query->q + (int64_t)h * query->dim;
        const double dot = smelt__dot(row, query->key, query->dim);
        const double sizes = smelt__dot_of_sizes(row, query->key, query->dim);
        const int relu = query->activation == SMELT__ACTIVATION_RELU;
        const double term = weight * (relu && dot < 0 ? 0 : dot); /* NaN stays */
        const int below = relu && dot < -SMELT__E4M3_SUM_TOLERANCE * sizes;
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
    return isinf(logit) ? isinf(got) : isfinite(got) || (terms < 0 && got == INFINITY);
}

/* ---- rows ------------------------------------------------------------------------------------ */

int64_t smelt__indexer_logits_columns(const struct smelt__indexer_logits_spec *spec,
                                      const smelt_indexer_logits_args *args) {
    if (spec->candidate_block)
        return args->candidate_count * (spec->candidate_block / spec->block_max);
    return (args->rows + spec->block_max - 1) / spec->block_max;
}

int64_t smelt__indexer_logits_keys(const struct smelt__indexer_logits_spec *spec,
                                   const smelt_indexer_logits_args *args, int64_t query,
                                   int64_t column, int64_t *count) {
    const int64_t each = spec->candidate_block / spec->block_max; /* columns of a candidate */
    int64_t first = column * spec->block_max;
    *count = spec->block_max;
    if (each) {
        const int64_t block =
            ((const int32_t *)
                 args->candidates.data)[query * args->candidates.strides[0] + column / each];
        first = (block * each + column % each) * spec->block_max;
        *count = block < 0 ? 0 : spec->block_max;
    }
    if (first + *count > args->rows)
        *count = args->rows > first ? args->rows - first : 0;
    return first;
}

/* The largest logit so far of a block, of its decided ones. */
struct largest {
    double logit, terms;
    int undecided; /* 1: there is a key whose logit may be either infinity */
};

static void enlarge(struct largest *largest, double logit, double terms) {
    if (isinf(logit) && terms < 0) {
        largest->undecided = 1;
        return;
    }
    largest->logit = fmax(largest->logit, logit);
    if (isfinite(logit))
        largest->terms = fmax(largest->terms, terms);
}

/* The terms of the largest logit, -inf and below 0 as said in the header. */
static double terms_of(const struct largest *largest) {
    if (!largest->undecided || largest->logit == INFINITY)
        return largest->terms;
    return isinf(largest->logit) ? -INFINITY : -fmax(largest->terms, DBL_MIN);
}

/* Logit number `column` of the opened query's heads. */
static struct largest block_logit(const struct smelt__indexer_logits_spec *spec,
                                  const smelt_indexer_logits_args *args,
                                  const struct smelt__indexer_query *opened, int64_t query,
                                  int64_t column) {
    const int32_t begin = ((const int32_t *)args->window_begin.data)[query];
    const int32_t end = ((const int32_t *)args->window_end.data)[query];
    const float *const scales = args->k_scale.data;
    int64_t count;
    const int64_t first = smelt__indexer_logits_keys(spec, args, query, column, &count);
    struct largest largest = {.logit = -INFINITY};
    for (int64_t s = first; s < first + count; s++) {
        double terms;
        if (s < begin || s >= end)
            continue;
        const double logit =
            smelt__indexer_logit(opened, &args->k, s, scales ? (double)scales[s] : 1, &terms);
        enlarge(&largest, logit, terms);
    }
    return largest;
}

int smelt__indexer_logits_reference(const struct smelt__indexer_logits_spec *spec,
                                    const smelt_indexer_logits_args *args, int64_t query,
                                    double *logits, double *terms) {
    const int64_t columns = smelt__indexer_logits_columns(spec, args);
    struct smelt__indexer_query opened;
    const int failed =
        smelt__indexer_query_open(&opened, spec->heads, spec->dim, spec->dtype, spec->weights_dtype,
                                  &args->q, &args->weights, query);
    opened.activation = spec->activation;
    opened.count = spec->heads / spec->groups;
    opened.scale = args->scale == 0 ? 1 : args->scale;
    for (int64_t i = 0; i < spec->groups * columns && !failed; i++) {
        opened.first = (int)(i / columns) * opened.count;
        const struct largest largest = block_logit(spec, args, &opened, query, i % columns);
        logits[i] = largest.logit;
        if (terms)
            terms[i] = terms_of(&largest);
    }
    smelt__indexer_query_close(&opened);
    return failed;
}
