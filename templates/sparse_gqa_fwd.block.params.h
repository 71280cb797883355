//@use sparse_gqa_items.params.h
/*
 * Arguments of the block-stationary sparse_gqa_fwd kernels (variant sm90). Included by the host code
 * (behind sparse_gqa_items.params.h) and, by the generator, by the CUDA source: plain C types only.
 */
struct sparse_gqa_block_params {
    struct tensor_map q_map; /* [batches, tokens, HEADS, DQK] in boxes of 64 columns and BOX_UNITS
                                times 8 heads */
    struct gqa_block_source k, v;
    struct gqa_items_params items;
    void *partials;     /* [units][DV / 32][32][8] bf16 */
    float *partial_lse; /* [units][8], in powers of two */
    float scale;        /* softmax scale, natural units */
};
