//@use common/work.params.h
//@use sparse_gqa.params.h
/*
 * Arguments of sparse_gqa_bwd (dq; variant sm90 also dk and dv) and of the mma kernels of
 * sparse_gqa_bwd_keys (dk, dv). Included by the host code (behind the headers above) and, by the
 * generator, by the CUDA source: plain C types only. Strides count elements. See
 * include/smelt/sparse_gqa.h for what the tensors hold, sparse_gqa_lists.params.h for the index.
 */
struct sparse_gqa_bwd_params {
    struct work_params work;
    struct gqa_lists_params lists;
    const void *q;        /* [batches, tokens, HEADS, DQK] bf16 */
    const void *k;        /* [batches, rows, KV_HEADS, DQK] bf16 */
    const void *v;        /* [batches, rows, KV_HEADS, DV] bf16 */
    const void *grad_out; /* [batches, tokens, HEADS, DV] bf16 */
    const float
        *statistics; /* [entries, HEADS, 2] of each entry of the query list: the base that is
                                subtracted from the scores in powers of two, finite or +inf, and
                                delta */
    void *dq;        /* [batches, tokens, HEADS, DQK] bf16 */
    float *dk, *dv;  /* [batches, KV_HEADS, rows, DQK or DV] sums, which are added to; columns in
                                the order of common/key_columns.cuh. Null in sparse_gqa_bwd
                                where sparse_gqa_bwd_keys sums them */
    const int *starts, *items, *queries; /* the reverse index */
    long long q_batch_stride, q_token_stride, q_head_stride;
    long long k_batch_stride, k_row_stride, k_head_stride;
    long long v_batch_stride, v_row_stride, v_head_stride;
    long long grad_out_batch_stride, grad_out_token_stride, grad_out_head_stride;
    long long dq_batch_stride, dq_token_stride, dq_head_stride;
    int blocks;                 /* of rows, in a batch */
    int index_lists;            /* lists of the reverse index */
    int segment;                /* queries of an item of sparse_gqa_bwd_keys */
    float scale;                /* softmax scale, natural units */
    unsigned long long *bounds; /* [batches, KV_HEADS, rows, KINDS, BINS], with SUMS=bounds: for
                                   dv's and dk's rows (common/bounds.cuh) */
    /* [batches, KV_HEADS, rows], with SUMS=exact: exponent fields of dv's grain, in the low byte, and dk's */
    const unsigned short *grains;
};
