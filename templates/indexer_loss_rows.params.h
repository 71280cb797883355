/*
 * Arguments of the indexer_loss_rows kernel. Included by the host code and, by the generator, by
 * the CUDA source: plain C types only. Strides count elements.
 */
struct indexer_loss_rows_params {
    const float *logits;    /* [queries, width] */
    const float *target;    /* [queries, width] */
    const int *indices;     /* [queries, width] */
    const int *topk_length; /* [queries], or null */
    const float *weight;    /* [queries], or null: 1 */
    const float *grad_loss; /* one number, or null: 1 */
    float *losses;          /* [queries] */
    float *grad;            /* [queries, width], or null */
    long long logits_stride, target_stride, indices_stride, topk_length_stride, grad_stride;
    int queries, rows, width;
    float query_weight;
    int whole; /* 1: rows of all matrices are 16-byte aligned, width is a multiple of 4 */
};
