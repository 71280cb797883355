//@use common/base.cuh

/* Sums over a quad (four adjacent lanes) in a fixed order: even lanes get the sum of x, odd ones
 * that of y. */
DEVICE float quad_sum_pair(float x, float y) {
    const bool odd = threadIdx.x & 1;
    float sum = odd ? y : x;
    sum += __shfl_xor_sync(0xffffffffu, odd ? x : y, 1);
    return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
}
