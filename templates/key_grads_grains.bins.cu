//@use common/base.cuh
//@use common/bounds.cuh
//@use key_grads_grains.bins.params.h
/*
 * Deterministic backward pass of sparse_gqa: the grains of dv's and dk's rows from their bounds, which
 * sparse_gqa_bwd.sm90.cu with SUMS=bounds computed. One thread per row; any grid size.
 */

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct key_grads_bins_params params) {
    for (i64 row = blockIdx.x * (i64)THREADS + threadIdx.x; row < params.rows;
         row += gridDim.x * (i64)THREADS) {
        const u64 *const bounds = params.bounds + row * KINDS * BINS;
        params.grains[row] = (unsigned short)(grain_exponent(bounds + VALUE * BINS) |
                                              grain_exponent(bounds + KEY * BINS) << 8);
    }
}
