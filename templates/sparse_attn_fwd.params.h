//@use common/work.params.h
/*
 * Arguments of the sparse_attn_fwd kernels, every variant. Included by the host code (behind
 * common/work.params.h) and, by the generator, by the CUDA source: plain C types only. Strides
 * count elements. See include/smelt/sparse_attn.h for what each tensor holds.
 */
struct sparse_attn_fwd_params {
    struct work_params work;
    const void *q;     /* [batches, tokens, HEADS, DQK] bf16 */
    const void *kv;    /* [batches, rows, DQK] bf16 */
    const float *sink; /* [HEADS], read when HAS_SINK */
    void *out;         /* [batches, tokens, HEADS, DV] bf16 */
    float *lse;        /* [batches, tokens, HEADS] */
    float *max_logits; /* [batches, tokens, HEADS], or null */
    long long q_batch_stride, q_token_stride, q_head_stride;
    long long kv_batch_stride;
    long long out_batch_stride, out_token_stride, out_head_stride;
    long long lse_batch_stride, lse_token_stride, lse_head_stride;
    long long max_logits_batch_stride, max_logits_token_stride, max_logits_head_stride;
    unsigned kv_row_bytes; /* from one KV row to the next */
    float scale;           /* softmax scale, natural units */
};
