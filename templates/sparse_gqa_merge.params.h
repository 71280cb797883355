/*
 * Arguments of the sparse_gqa_merge kernels. Included by the host code (behind common/work.params.h)
 * and, by the generator, by the CUDA source: plain C types only. Strides count elements.
 */
struct sparse_gqa_merge_params {
    struct work_params work;  /* its lists are not read */
    const int *places;        /* of the reverse index: [entries][groups][width] */
    const void *partials;     /* as sparse_gqa_fwd.block.params.h has them */
    const float *partial_lse; /* likewise */
    const float *sink;        /* [HEADS], read when HAS_SINK */
    void *out;                /* [batches, tokens, HEADS, DV] bf16 */
    float *lse;               /* [batches, tokens, HEADS] */
    long long out_batch_stride, out_token_stride, out_head_stride;
    long long lse_batch_stride, lse_token_stride, lse_head_stride;
    int first, entries; /* of the query list */
                        //@if UNITES
    const int *tiles;   /* of the reverse index, or null; entries of united tiles are left out */
    int tile_entries;
    int unused;
    //@end
};
