//@use common/work.params.h
//@use sparse_gqa.params.h
//@use sparse_gqa.groups.params.h
//@takes united
/*
 * Arguments of the sparse_gqa_fwd kernels, every variant. Included by the host code (behind the
 * headers above) and, by the generator, by the CUDA source: plain C types only. Strides count
 * elements. See include/smelt/sparse_gqa.h for what each tensor holds.
 */
struct sparse_gqa_fwd_params {
    struct work_params work;
    struct gqa_lists_params lists;
    const void *q;     /* [batches, tokens, HEADS, DQK] bf16 */
    const void *k;     /* [batches, rows, KV_HEADS, DQK] bf16 */
    const void *v;     /* [batches, rows, KV_HEADS, DV] bf16 */
    const float *sink; /* [HEADS], read when HAS_SINK */
    void *out;         /* [batches, tokens, HEADS, DV] bf16 */
    float *lse;        /* [batches, tokens, HEADS] */
    long long q_batch_stride, q_token_stride, q_head_stride;
    long long k_batch_stride, k_row_stride, k_head_stride;
    long long v_batch_stride, v_row_stride, v_head_stride;
    long long out_batch_stride, out_token_stride, out_head_stride;
    long long lse_batch_stride, lse_token_stride, lse_head_stride;
    float scale; /* softmax scale, natural units */
                 //@if united
    struct gqa_groups_params groups;
    //@end
};
