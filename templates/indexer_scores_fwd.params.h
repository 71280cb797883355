//@use common/work.params.h
/*
 * Arguments of the indexer_scores_fwd kernels, every variant. Included by the host code (behind
 * common/work.params.h) and, by the generator, by the CUDA source: plain C types only. Strides
 * count elements. See include/smelt/indexer_scores.h for the tensors.
 */
struct indexer_scores_fwd_params {
    struct work_params work; /* one batch, no query list */
    const void *q;           /* [tokens, HEADS, DIM] bf16 */
    const void *k;           /* [rows, DIM] bf16 */
    const float *weights;    /* [tokens, HEADS] */
    float *logits;           /* [tokens, width] */
    long long q_token_stride, q_head_stride;
    long long weights_token_stride;
    long long logits_token_stride;
    unsigned k_row_bytes; /* from one key to the next */
};
