//@use sparse_gqa_items.params.h
/*
 * Arguments of the block-stationary sparse_gqa_bwd_keys kernels (variant sm90). Included by the host
 * code (behind sparse_gqa_items.params.h) and, by the generator, by the CUDA source: plain C types
 * only.
 */
struct sparse_gqa_bwd_block_params {
    /* [batches, tokens, HEADS, DQK or DV] in boxes of 64 columns and BOX_UNITS times 8 heads */
    struct tensor_map q_map, grad_out_map;
    struct gqa_block_source k, v;
    struct gqa_items_params items;
    const int *queries;      /* of the reverse index: a pair's entry */
    const float *statistics; /* [entries, HEADS, 2], as attention_bwd_rows writes them */
    void *dq_partials;       /* [units][DQK / 32][32][8] bf16 */
    float *key_partials;     /* [items][GROUPS][(DQK + DV) / 8][128][4]: see the kernel's head */
    float scale;             /* softmax scale, natural units */
};
