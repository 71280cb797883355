//@use common/work.params.h
//@use sparse_gqa_items.params.h
//@use sparse_gqa.params.h
/*
 * Arguments of the sparse_gqa_united kernels. Included by the host code (behind the headers that it
 * uses) and, by the generator, by the CUDA source: plain C types only. Strides count elements.
 */
struct sparse_gqa_united_params {
    struct tensor_map q_map; /* as sparse_gqa_fwd.block.params.h has it */
    struct gqa_block_source k, v;
    struct work_params work; /* its lists are not read */
    struct gqa_lists_params lists;
    struct gqa_items_params items; /* tokens and rows alone */
    const int *tiles;              /* of the reverse index (sparse_gqa_lists.params.h) */
    const int *united;             /* likewise */
    const float *sink;             /* [HEADS], read when HAS_SINK */
    void *out;                     /* [batches, tokens, HEADS, DV] bf16 */
    float *lse;                    /* [batches, tokens, HEADS] */
    long long out_batch_stride, out_token_stride, out_head_stride;
    long long lse_batch_stride, lse_token_stride, lse_head_stride;
    int first, entries; /* of the query list */
    float scale;        /* softmax scale, natural units */
    int unused;
};
