#include "reference/operators.h"

#include <math.h>

int smelt__indexer_scores_reference(const struct smelt__indexer_scores_spec *spec,
                                    const smelt_indexer_scores_args *args, int64_t query,
                                    double *logits, double *terms) {
    const int32_t *const slots =
        (const int32_t *)args->indices.data + query * args->indices.strides[0];
    const int32_t *const lengths = args->topk_length.data;
    const int64_t length = lengths ? lengths[query * args->topk_length.strides[0]] : args->width;
    struct smelt__indexer_query opened;
    const int failed =
        smelt__indexer_query_open(&opened, spec->heads, spec->dim, SMELT__DTYPE_BF16,
                                  spec->weights_dtype, &args->q, &args->weights, query);
    const int64_t size = spec->granularity;
    const int32_t *const limits = args->limit.data;
    const int64_t limit = limits ? limits[query * args->limit.strides[0]] : args->rows;
    opened.activation = spec->activation;
    for (int64_t i = 0; i < args->width * size && !failed; i++) {
        const int64_t entry = slots[i / size], row = entry * size + i % size;
        double sizes = 0;
        logits[i] = -INFINITY;
        if (i / size < length && entry >= 0 && row < args->rows && row < limit)
            logits[i] = smelt__indexer_logit(&opened, &args->k, row, 1, &sizes);
        if (terms)
            terms[i] = sizes;
    }
    smelt__indexer_query_close(&opened);
    return failed;
}
