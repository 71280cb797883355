/*
 * Arguments of the key_grads_finish kernel. Included by the host code and, by the generator, by the
 * CUDA source: plain C types only. Strides count elements.
 */
enum { FINISH_BF16, FINISH_FP32, FINISH_ADD };

/* Rows of dq that were computed in slices (sparse_attn_bwd.slices.cuh), as sparse_attn_bwd.params.h
 * has them. */
struct dq_slices {
    const void *slices;
    const int *members, *counts;
    void *dq;
    long long dq_batch_stride, dq_token_stride, dq_head_stride;
    int items; /* that are sliced, of pairs pairs; 0: none */
    int slice_ctas;
    int sides;                      /* 2: of pairs */
    int group_queries, head_blocks; /* queries and items of a group */
    int member_rows;                /* rows of a query in an item */
    int heads, tokens;
};

struct key_grads_finish_params {
    struct dq_slices dq;
    const float *sums;        /* [batches, key_heads, rows, DQK] columns in the order of
                                 common/key_columns.cuh */
    void *dkv;                /* [batches, rows, key_heads, DQK], of the kind `mode` says */
    const float *dsink_parts; /* [parts, heads], or null */
    float *dsink;             /* [heads], or null */
    long long dkv_batch_stride, dkv_row_stride, dkv_head_stride;
    int mode; /* bf16 or fp32 are overwritten, or fp32 is added to */
    int batches, rows;
    int key_heads; /* of a key; 0: one */
    int heads, parts;
};
