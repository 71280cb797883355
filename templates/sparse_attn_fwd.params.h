/*
 * Arguments of the sparse_attn_fwd kernels, every variant. Included by the host code and, by the
 * generator, by the CUDA source: plain C types only. Strides count elements. See
 * include/smelt/sparse_attn.h for what each tensor holds.
 */
struct sparse_attn_fwd_params {
    const void *q;          /* [batches, tokens, HEADS, DQK] bf16 */
    const void *kv;         /* [batches, rows, DQK] bf16 */
    const int *indices;     /* [batches, tokens, width] */
    const int *topk_length; /* [batches, tokens] or null */
    const float *sink;      /* [HEADS], read when HAS_SINK */
    void *out;              /* [batches, tokens, HEADS, DV] bf16 */
    float *lse;             /* [batches, tokens, HEADS] */
    float *max_logits;      /* as lse, or null */
    const int *queries;     /* query list: batch * tokens + token, or null for all queries */
    const int *query_count; /* its length in device memory, or null for query_capacity */
    const int *query_range; /* the first entry to take and how many, in device memory, instead of
                               query_count; or null */
    const int *extents;     /* with entry i of `queries`: slots up to its last valid one; or null */
    long long q_batch_stride, q_token_stride, q_head_stride;
    long long kv_batch_stride;
    long long indices_batch_stride, indices_token_stride;
    long long topk_length_batch_stride, topk_length_token_stride;
    long long out_batch_stride, out_token_stride, out_head_stride;
    long long lse_batch_stride, lse_token_stride, lse_head_stride;
    int batches, tokens, rows, width;
    int query_capacity;    /* entries of `queries`, or batches * tokens */
    unsigned kv_row_bytes; /* from one KV row to the next */
    float scale;           /* softmax scale, natural units */
    int overlaps;          /* 1: launched early, behind a kernel of the same call: all it reads was
                              there when it began, and it must not end before that one */
};
