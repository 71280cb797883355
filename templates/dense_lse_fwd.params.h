//@use common/tensor_map.h
/*
 * Arguments of the dense_lse_fwd kernels, every variant. Included by the host code (behind
 * common/tensor_map.h) and, by the generator, by the CUDA source: plain C types only. Strides count
 * elements. See include/smelt/dense_lse.h for the tensors.
 */
struct dense_lse_fwd_params {
    /* Only of variant sm90: q as [tokens, KV_HEADS, HEADS / KV_HEADS, DQK] in boxes of ITEM_QUERIES
     * queries, QUERY_ROWS heads and 64 columns; k as [rows, KV_HEADS, 1, DQK] in boxes of COLUMNS
     * rows and 64 columns. 128-byte swizzled; elements outside the tensors are zeros. */
    struct tensor_map q_map, k_map;
    const void *q;           /* [tokens, HEADS, DQK] bf16 */
    const void *k;           /* [rows, KV_HEADS, DQK] bf16 */
    const int *window_begin; /* [tokens], clipped to [0, rows) */
    const int *window_end;   /* [tokens] */
    float *lse;              /* [tokens, HEADS] natural */
    long long q_token_stride, q_head_stride;
    long long k_row_stride, k_head_stride;
    long long lse_token_stride, lse_head_stride;
    int tokens, rows; /* tokens above 0 */
    float scale;      /* of the products, above 0 */
};
