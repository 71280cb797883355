/*
 * Arguments of pass bins of indexer_bwd_grains. Included by the host code and, by the generator, by the
 * CUDA source: plain C types only.
 */
struct indexer_bwd_bins_params {
    const unsigned long long *bounds; /* [rows, KINDS, BINS] (common/bounds.cuh) */
    unsigned short *grains;           /* [rows] exponents: of dv's grain; above it, of dk's */
    long long rows;
};
