//@use common/work.params.h
//@use sparse_gqa.params.h
/*
 * Arguments of the sparse_gqa_scores_fwd kernels. Included by the host code (behind the headers above)
 * and, by the generator, by the CUDA source: plain C types only. Strides count elements. See
 * include/smelt/sparse_gqa_scores.h for what each tensor holds.
 */
struct sparse_gqa_scores_fwd_params {
    struct work_params work;
    struct gqa_lists_params lists;
    const void *q;     /* [batches, tokens, HEADS, DQK] bf16 */
    const void *k;     /* [batches, rows, KV_HEADS, DQK] bf16 */
    const float *lse;  /* [batches, tokens, HEADS] */
    const float *sink; /* [HEADS], or null */
    float *target;     /* [batches, tokens, lists, width] */
    long long q_batch_stride, q_token_stride, q_head_stride;
    long long k_batch_stride, k_row_stride, k_head_stride;
    long long lse_batch_stride, lse_token_stride, lse_head_stride;
    long long target_batch_stride, target_token_stride, target_group_stride;
    float scale; /* softmax scale, natural units */
};
