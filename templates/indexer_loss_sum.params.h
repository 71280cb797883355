/*
 * Arguments of the indexer_loss_sum kernel. Included by the host code and, by the generator, by the
 * CUDA source: plain C types only.
 */
struct indexer_loss_sum_params {
    const float *losses; /* [queries, groups], query_stride apart */
    float *loss;         /* one number */
    long long query_stride;
    int queries, groups;
};
