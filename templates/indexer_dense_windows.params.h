/*
 * Arguments of the kernel of indexer_dense_rows' pass windows. Included by the host code and, by the
 * generator, by the CUDA source: plain C types only.
 */
struct indexer_dense_windows_params {
    const int *window_begin; /* [tokens] of keys, clipped to [0, rows) */
    const int *window_end;   /* [tokens] */
    int *pool_begin;         /* [tokens] of pools */
    int *pool_end;           /* [tokens] at least pool_begin */
    int tokens, rows;
};
