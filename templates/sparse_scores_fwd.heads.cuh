//@use common/softmax.cuh
//@use common/work.cuh
//@use ptx/math.cuh
//@use sparse_scores_fwd.params.h
/*
 * A query's heads, as every variant needs them, and its row of the result
 * (include/smelt/sparse_scores.h). In powers of two p = exp2(score * scale_log2 + offset): the
 * offset is what head's denominator comes to.
 */

/* -log2 of what the head's p is divided by; -inf past the last head, whose p is 0. */
DEVICE float head_offset(const struct sparse_scores_fwd_params *params, int batch, int token,
                         int head) {
    if (head >= HEADS) {
        return MINUS_INFINITY;
    }
    const float lse =
        LOG2_E * params->lse[batch * params->lse_batch_stride + token * params->lse_token_stride +
                             head * params->lse_head_stride];
    if (!params->sink) {
        return -lse;
    }
    const float sink = LOG2_E * params->sink[head], highest = fmaxf(sink, lse);
    return highest == -MINUS_INFINITY
               ? MINUS_INFINITY
               : -highest - log2_approximate(exp2_approximate(sink - highest) +
                                             exp2_approximate(lse - highest));
}

/* Where a query's row of the target begins. */
DEVICE float *target_row(const struct sparse_scores_fwd_params *params, int batch, int token) {
    return params->target + batch * params->target_batch_stride +
           token * params->target_token_stride;
}
