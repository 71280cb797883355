//@use common/base.cuh
/*
 * What kernels behind this one add to begins as zeros: each block fills its share, in any grid.
 */

/* `vectors` of four floats, at a multiple of 16 bytes; by all threads of all blocks. */
DEVICE void fill_zeros(float *begin, i64 vectors) {
    const float4 zeros = {0.0f, 0.0f, 0.0f, 0.0f};
    float4 *const end = (float4 *)begin + vectors;
    for (float4 *at = (float4 *)begin + blockIdx.x * THREADS + threadIdx.x; at < end;
         at += gridDim.x * THREADS) {
        *at = zeros;
    }
}
