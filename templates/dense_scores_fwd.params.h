//@use common/tensor_map.h
/*
 * Arguments of the dense_scores_fwd kernels, every variant. Included by the host code (behind
 * common/tensor_map.h) and, by the generator, by the CUDA source: plain C types only. Strides count
 * elements. See include/smelt/indexer_dense_loss.h for the tensors.
 */
struct dense_scores_fwd_params {
    /* Only of variant sm90: q as [tokens, KV_HEADS, HEADS / KV_HEADS, DQK] in boxes of TILE_QUERIES
     * queries, QUERY_ROWS heads and 64 columns; k as [rows, KV_HEADS, 1, DQK] in boxes of
     * BLOCK_KEYS rows and 64 columns. 128-byte swizzled; elements outside the tensors are zeros. */
    struct tensor_map q_map, k_map;
    const void *q;           /* [tokens, HEADS, DQK] bf16 */
    const void *k;           /* [rows, KV_HEADS, DQK] bf16 */
    const float *lse;        /* [tokens, HEADS] natural */
    const int *window_begin; /* [tokens], clipped to [0, rows) */
    const int *window_end;   /* [tokens] */
    float *scores;           /* [tokens, rows] written inside the windows; elsewhere undefined */
    long long q_token_stride, q_head_stride;
    long long k_row_stride, k_head_stride;
    long long lse_token_stride, lse_head_stride;
    long long scores_stride;
    int tokens, rows; /* both above 0 */
    float scale;      /* of the products, above 0 */
};
