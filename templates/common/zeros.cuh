//@use common/base.cuh
/* Zero-fills accumulators for later kernels; each block fills a share, for any grid size. */

/* `vectors` of four floats, from a multiple of 16 bytes on. By all threads of all blocks. */
DEVICE void fill_zeros(float *begin, i64 vectors) {
    const float4 zeros = {0.0f, 0.0f, 0.0f, 0.0f};
    float4 *const end = (float4 *)begin + vectors;
    for (float4 *at = (float4 *)begin + blockIdx.x * THREADS + threadIdx.x; at < end;
         at += gridDim.x * THREADS) {
        *at = zeros;
    }
}
