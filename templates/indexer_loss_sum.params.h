/*
 * Arguments of the indexer_loss_sum kernel. Included by the host code and, by the generator, by the
 * CUDA source: plain C types only.
 */
struct indexer_loss_sum_params {
    const float *losses; /* [queries] */
    float *loss;         /* one number */
    int queries;
};
