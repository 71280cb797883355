//@use common/work.params.h
/*
 * Arguments of the indexer_scores_fwd kernels, every variant. Included by the host code (behind
 * common/work.params.h) and, by the generator, by the CUDA source: plain C types only. Strides
 * count elements. See include/smelt/indexer_scores.h for the tensors.
 */
struct indexer_scores_fwd_params {
    struct work_params
        work;            /* one batch, no query list; its width counts slots, GRANULARITY for each
                                entry of `indices`, but topk_length entries */
    const void *q;       /* [tokens, HEADS, DIM] bf16, or e4m3 with FP8 */
    const void *k;       /* [rows, DIM] likewise */
    const void *weights; /* [tokens, HEADS]; NULL without WEIGHTS */
    void *logits; /* [tokens, HEAD_GROUPS, width / BLOCK_MAX] fp32, or bf16 with LOGITS_BF16 */
    long long q_token_stride, q_head_stride;
    long long weights_token_stride;
    long long logits_token_stride;
    unsigned k_row_bytes;    /* from one key to the next */
    float scale;             /* every head's weight without WEIGHTS */
    const float *k_scale;    /* [rows], with FP8 */
    const int *window_begin; /* [tokens], with WINDOWS */
    const int *window_end;   /* [tokens] */
    long long logits_group_stride;
    int weights_bf16; /* 1: weights are bf16; 0: fp32 */
    /* Without WINDOWS: */
    const int *limit; /* [tokens] rows from it on are masked; or null */
    int *keys;        /* [tokens, width / BLOCK_MAX] with BLOCK_MAX above 1: the row with a block's
                         largest logit, of equal ones the lowest slot's, -1 where all are -inf; or
                         null */
    long long limit_token_stride, keys_token_stride;
};
