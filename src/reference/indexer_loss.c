#include "reference/operators.h"

#include <float.h>
#include <math.h>

static const float *row_of(const smelt_const_tensor *tensor, int64_t query) {
    return (const float *)tensor->data + query * tensor->strides[0];
}

static int is_valid(const smelt_indexer_loss_args *args, int64_t query, int64_t i) {
    const int32_t *const lengths = args->topk_length.data;
    const int32_t index =
        ((const int32_t *)args->indices.data)[query * args->indices.strides[0] + i];
    if (lengths && i >= lengths[query * args->topk_length.strides[0]])
        return 0;
    return index >= 0 && index < args->rows;
}

static double query_weight(const smelt_indexer_loss_args *args, int64_t query) {
    const float *const weights = args->weight.data;
    const float weight = args->query_weight * (weights ? weights[query] : 1.0F); /* in fp32 */
    return isfinite(weight) ? (double)weight : 0;
}

/* q = softmax of the logits over the valid slots; returns ln of the denominator. */
static double take_logits(const smelt_indexer_loss_args *args, int64_t query, double *q) {
    const float *const logits = row_of(&args->logits, query);
    double largest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < args->width; i++) {
        const float logit = isnan(logits[i]) ? -INFINITY : fminf(logits[i], FLT_MAX);
        q[i] = is_valid(args, query, i) ? (double)logit : -INFINITY;
        largest = fmax(largest, q[i]);
    }
    if (isinf(largest))
        largest = 0; /* all logits are -inf */
    for (int64_t i = 0; i < args->width; i++)
        sum += q[i] = exp(q[i] - largest);
    for (int64_t i = 0; i < args->width && sum > 0; i++)
        q[i] /= sum;
    return sum > 0 ? largest + log(sum) : 0;
}

/* p = the targets over their sum; returns 0 if the sum is not a normal fp32 number. */
static int take_target(const smelt_indexer_loss_args *args, int64_t query, double *p) {
    const float *const target = row_of(&args->target, query);
    double sum = 0;
    for (int64_t i = 0; i < args->width; i++)
        sum += p[i] = is_valid(args, query, i) && target[i] > 0 ? (double)target[i] : 0;
    const int counts = sum >= (double)FLT_MIN && sum <= (double)FLT_MAX;
    for (int64_t i = 0; i < args->width; i++)
        p[i] = counts ? p[i] / sum : 0;
    return counts;
}

struct smelt__indexer_loss_found smelt__indexer_loss_reference(const smelt_indexer_loss_args *args,
                                                               int64_t query, double *q, double *p,
                                                               double *grad) {
    const float *const logits = row_of(&args->logits, query), *const given = args->grad_loss.data;
    struct smelt__indexer_loss_found found = {0};
    const double log_sum = take_logits(args, query, q);
    const int counts = take_target(args, query, p);
    const double grad_loss = given ? (double)*given : 1;
    found.weight = counts ? query_weight(args, query) : 0;
    for (int64_t i = 0; i < args->width; i++) {
        if (grad)
            grad[i] =
                found.weight != 0 && q[i] != p[i] ? grad_loss * found.weight * (q[i] - p[i]) : 0;
        if (p[i] == 0 || found.weight == 0)
            continue;
        const double logit =
            isnan(logits[i]) ? -INFINITY : fmin((double)logits[i], (double)FLT_MAX);
        const double surprise = log(p[i]) - (logit - log_sum);
        found.loss += found.weight * p[i] * surprise;
        found.terms += p[i] * fabs(surprise);
    }
    return found;
}
