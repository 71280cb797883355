//@use common/base.cuh
//@use common/warp_sums.cuh

/*
 * Sum and maximum of one float per thread, bitwise the same in all threads; only THREADS determines
 * the order. `warps`: one float per warp in shared memory. All threads call block_begin, then pass
 * a barrier; then whole warps call block_sum or block_maximum.
 */

/* `own`: the warp's sum or maximum, the same in all its lanes. */
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
