//@use common/base.cuh

/* Sum and maximum over a warp, bitwise the same in all lanes. By whole warps. */

DEVICE float warp_sum(float value) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, step);
    }
    return value;
}

DEVICE float warp_maximum(float value) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
    }
    return value;
}
