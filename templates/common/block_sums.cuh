//@use common/base.cuh
//@use common/warp_sums.cuh

/*
 * The sum and the maximum of a float of each thread, the same bits in all of them, in an order that
 * THREADS alone fixes. `warps`: a float of each warp, in shared memory. block_begin by all threads;
 * a barrier; block_sum or block_maximum by whole warps.
 */

/* `own`: the same in all lanes of a warp. */
DEVICE void block_begin(float *warps, float own) {
    if (threadIdx.x % 32 == 0) {
        warps[threadIdx.x / 32] = own;
    }
}

DEVICE float block_sum(const float *warps) {
    const int lane = (int)threadIdx.x % 32;
    return warp_sum(lane < THREADS / 32 ? warps[lane] : 0.0f);
}

DEVICE float block_maximum(const float *warps) {
    const int lane = (int)threadIdx.x % 32;
    return warp_maximum(warps[lane < THREADS / 32 ? lane : 0]);
}
