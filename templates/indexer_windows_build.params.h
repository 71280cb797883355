/* Arguments of the indexer_windows_build kernels. Plain C types only. */
struct indexer_windows_build_params {
    const int *cu_seqlens;          /* [documents + 1] */
    const int *cu_seqlens_padded;   /* likewise, or NULL */
    const int *cu_seqlens_keys;     /* likewise, or NULL */
    const int *causal_offset;       /* [documents], or NULL */
    const int *query_indices;       /* [tokens], or NULL */
    int *window_begin, *window_end; /* [tokens] */
    int tokens, documents;
    int rows;  /* of keys */
    int ratio; /* tokens per key, at least 1 */
};
