/*
 * Arguments of the sparse_scores_fwd kernels, every variant. Included by the host code (behind
 * common/work.params.h) and, by the generator, by the CUDA source: plain C types only. Strides
 * count elements. See include/smelt/sparse_scores.h for what each tensor holds.
 */
struct sparse_scores_fwd_params {
    struct work_params work;
    const void *q;     /* [batches, tokens, HEADS, DQK] bf16 */
    const void *kv;    /* [batches, rows, DQK] bf16 */
    const float *lse;  /* [batches, tokens, HEADS] */
    const float *sink; /* [HEADS], or null */
    float *target;     /* [batches, tokens, width] */
    long long q_batch_stride, q_token_stride, q_head_stride;
    long long kv_batch_stride;
    long long lse_batch_stride, lse_token_stride, lse_head_stride;
    long long target_batch_stride, target_token_stride;
    unsigned kv_row_bytes; /* from one KV row to the next */
    float scale;           /* softmax scale, natural units */
};
