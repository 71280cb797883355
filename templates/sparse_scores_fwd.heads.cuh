//@use common/denominator.cuh
//@use common/softmax.cuh
//@use common/work.cuh
//@use sparse_scores_fwd.params.h
/*
 * The softmax denominators of a query's heads, and its row of the target
 * (include/smelt/sparse_scores.h). p = exp2(score * scale_log2 + offset), where the offset is -log2
 * of the head's denominator.
 */

/* -inf for padded heads, so that their p is 0. */
DEVICE float head_offset(const struct sparse_scores_fwd_params *params, int batch, int token,
                         int head) {
    if (head >= HEADS) {
        return MINUS_INFINITY;
    }
    const float lse =
        LOG2_E * params->lse[batch * params->lse_batch_stride + token * params->lse_token_stride +
                             head * params->lse_head_stride];
    return params->sink ? denominator_offset_with_sink(lse, LOG2_E * params->sink[head]) : -lse;
}

/* A query's row of the target. */
DEVICE float *target_row(const struct sparse_scores_fwd_params *params, int batch, int token) {
    return params->target + batch * params->target_batch_stride +
           token * params->target_token_stride;
}
