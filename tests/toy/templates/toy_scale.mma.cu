//@use common/base.cuh
//@use toy_scale.params.h
/*
 * The tests' toy: multiplies each row by a factor and writes it to, or (ACCUMULATE) adds it to, the
 * row of another tensor. A block has one row, a thread every THREADS-th element of it.
 */

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct toy_scale_params params) {
    const i64 row = blockIdx.x;
    const float *const from = params.from + row * params.from_row_stride;
    float *const to = params.to + row * params.to_row_stride;
    for (int i = (int)threadIdx.x; i < WIDTH; i += THREADS) {
        to[i] = params.factor * from[i] + (ACCUMULATE ? to[i] : 0.0f);
    }
}
