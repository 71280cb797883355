/*
 * Arguments of the sparse_attn_bwd_finish kernel. Included by the host code and, by the generator,
 * by the CUDA source: plain C types only. Strides count elements.
 */
enum { FINISH_BF16, FINISH_FP32, FINISH_ADD };

struct sparse_attn_bwd_finish_params {
    const float *sums;        /* [batches * rows, DQK] columns in the order of
                                 sparse_attn_bwd.columns.cuh */
    void *dkv;                /* [batches, rows, DQK], of the kind `mode` says */
    const float *dsink_parts; /* [parts, heads], or null */
    float *dsink;             /* [heads], or null */
    long long dkv_batch_stride, dkv_row_stride;
    int mode; /* bf16 or fp32 are overwritten, or fp32 is added to */
    int batches, rows;
    int heads, parts;
};
