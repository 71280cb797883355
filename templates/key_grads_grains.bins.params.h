/*
 * Arguments of pass bins of key_grads_grains. Included by the host code and, by the generator, by the
 * CUDA source: plain C types only.
 */
struct key_grads_bins_params {
    const unsigned long long *bounds; /* [rows, KINDS, BINS] (common/bounds.cuh) */
    unsigned short *grains; /* [rows] exponent fields: dv's grain in the low byte, then dk's */
    long long rows;
};
