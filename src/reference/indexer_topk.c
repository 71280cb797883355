#include "reference/operators.h"

#include <math.h>

#include "reference/bf16.h"

int smelt__indexer_topk_reference(const struct smelt__indexer_topk_spec *spec,
                                  const smelt_indexer_topk_args *args, int64_t query, int block,
                                  double *logits, double *terms) {
    const struct smelt__indexer_logits_spec logits_spec = {.heads = spec->heads,
                                                           .dim = spec->dim,
                                                           .dtype = spec->dtype,
                                                           .activation = spec->activation,
                                                           .weights = spec->weights,
                                                           .groups = spec->groups,
                                                           .block_max = block,
                                                           .weights_dtype = spec->weights_dtype};
    smelt_indexer_logits_args logits_args = SMELT_INDEXER_LOGITS_ARGS_INIT;
    logits_args.tokens = args->tokens;
    logits_args.rows = args->rows;
    logits_args.scale = args->scale;
    logits_args.q = args->q;
    logits_args.k = args->k;
    logits_args.weights = args->weights;
    logits_args.k_scale = args->k_scale;
    logits_args.window_begin = args->window_begin;
    logits_args.window_end = args->window_end;
    return smelt__indexer_logits_reference(&logits_spec, &logits_args, query, logits, terms);
}

static float rounded(double logit) {
    return smelt__bf16_to_float(smelt__bf16_from_float((float)logit));
}

/* The least e with which `better` less e times its terms rounds to no more than `worse` plus e times its
 * terms; at most `most`. */
static double rounding_error(double better, double better_terms, double worse, double worse_terms,
                             double most) {
    enum { BITS = 40 };
    double low = 0, high = most;
    if (rounded(better) <= rounded(worse))
        return 0;
    for (int i = 0; i < BITS; i++) {
        const double e = (low + high) / 2;
        if (rounded(better - e * better_terms) <= rounded(worse + e * worse_terms))
            high = e;
        else
            low = e;
    }
    return high;
}

double smelt__indexer_topk_error(int bf16, const double *logits, const double *terms,
                                 const uint8_t *chosen, int64_t begin, int64_t end) {
    int64_t best = -1, worst = -1; /* of those left out, of those chosen */
    for (int64_t s = begin; s < end; s++) {
        if (!isfinite(logits[s]) || !isfinite(terms[s]) || terms[s] < 0)
            continue;
        if (chosen[s] && (worst < 0 || logits[s] < logits[worst]))
            worst = s;
        if (!chosen[s] && (best < 0 || logits[s] > logits[best]))
            best = s;
    }
    if (best < 0 || worst < 0)
        return 0;
    const double error = logits[best] - logits[worst] - 2 * SMELT__LOGIT_UNDERFLOW;
    if (!(error > 0))
        return 0;
    const double least = error / (terms[best] + terms[worst]);
    return bf16 ? rounding_error(logits[best], terms[best], logits[worst], terms[worst], least)
                : least;
}

/* An infinity that is not decided: above all if it was chosen, below all if it was left out. A block
 * whose largest logit may also be +inf: above all if it was chosen. */
static double suiting(double logit, double terms, int chosen) {
    if (terms < 0)
        return chosen ? INFINITY : isinf(logit) ? -INFINITY : logit;
    return logit;
}

int64_t smelt__indexer_topk_misplaced(const double *logits, const double *terms,
                                      const uint8_t *chosen, int64_t begin, int64_t end) {
    int64_t highest = end; /* the first of +inf that was left out */
    int64_t lowest = -1;   /* the last of -inf that was chosen */
    for (int64_t s = begin; s < end; s++) {
        const double logit = suiting(logits[s], terms[s], chosen[s]);
        if (!chosen[s] && logit == INFINITY && highest == end)
            highest = s;
        if (chosen[s] && logit == -INFINITY)
            lowest = s;
    }
    for (int64_t s = begin; s < end; s++) {
        const double logit = suiting(logits[s], terms[s], chosen[s]);
        if (chosen[s] && highest < end && (logit < INFINITY || s > highest))
            return s;
        if (!chosen[s] && lowest >= 0 && (logit > -INFINITY || s < lowest))
            return lowest;
    }
    return -1;
}
