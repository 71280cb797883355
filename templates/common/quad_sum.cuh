//@use common/base.cuh

/* The sums over a quad (four neighbouring threads of a warp): of x in its even lanes, of y in its
 * odd ones; in a fixed order. */
DEVICE float quad_sum_pair(float x, float y) {
    const bool odd = threadIdx.x & 1;
    float sum = odd ? y : x;
    sum += __shfl_xor_sync(0xffffffffu, odd ? x : y, 1);
    return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
}
