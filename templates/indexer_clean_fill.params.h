/*
 * Arguments of the indexer_clean_fill kernel. Included by the host code and, by the generator, by
 * the CUDA source: plain C types only. Strides count elements.
 */
enum { BLOCK_KEYS = 8192 /* adjacent keys of a query: an item of the grid */ };

struct indexer_clean_fill_params {
    const int *window_begin; /* [tokens], clipped to [0, rows) */
    const int *window_end;   /* [tokens] */
    float *logits;           /* [tokens, rows]; written outside the windows */
    long long logits_token_stride;
    int tokens, rows; /* both above 0 */
};
