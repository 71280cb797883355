//@use common/base.cuh

/* Reductions over `lanes` neighbouring threads of a warp, a power of two: the same result in each
 * of them. The whole warp takes part. */

DEVICE int lanes_sum(int value, int lanes) {
    for (int step = lanes / 2; step > 0; step /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, step);
    }
    return value;
}

/* (Not the smallest by negated values: of -a in the smallest of three ptxas of CUDA 13.0 drops the
 * sign.) */
DEVICE int lanes_maximum(int value, int lanes) {
    for (int step = lanes / 2; step > 0; step /= 2) {
        value = maximum(value, __shfl_xor_sync(0xffffffffu, value, step));
    }
    return value;
}
