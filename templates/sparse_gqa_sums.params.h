/*
 * Arguments of the sparse_gqa_sums kernels, both passes. Included by the host code (behind
 * common/work.params.h) and, by the generator, by the CUDA source: plain C types only. Strides count
 * elements.
 */
struct sparse_gqa_sums_params {
    /* Of the pass `queries`: */
    struct work_params work; /* its lists are not read */
    const int *places;       /* of the reverse index: [entries][groups][width] */
    const void *dq_partials; /* as sparse_gqa_bwd_keys.block.params.h has them */
    void *dq;                /* [batches, tokens, HEADS, DQK] bf16 */
    long long dq_batch_stride, dq_token_stride, dq_head_stride;
    int first, entries; /* of the query list */
    /* Of the pass `keys`: */
    const int *items;          /* of the reverse index */
    const float *key_partials; /* as sparse_gqa_bwd_keys.block.params.h has them */
    float *dk_sums, *dv_sums;  /* [batches, KV_HEADS, rows, DQK or DV], columns in the order of
                                  common/key_columns.cuh */
    int blocks, rows;
    int adds;  /* 1: adds to the sums; 0: overwrites them */
    int lists; /* of the reverse index */
};
