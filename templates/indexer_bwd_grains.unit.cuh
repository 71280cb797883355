//@use common/base.cuh
//@use common/block_sums.cuh
//@use indexer_bwd_grains.params.h
/*
 * The unit that bounds are counted in: a power of two, so that the largest of all addends has
 * params.bits of them. As fp32's exponent field; where it would end below 0, addends are too small
 * for it to matter.
 *
 * TOPS_OFFSET: [WARPS] float.
 */

enum { EXPONENT_ONE = 127, EXPONENT_MOST = 254, MANTISSA_BITS = 23 };

/* The exponent field of 1 / unit, the same in all threads; a barrier. */
DEVICE int find_scale(const struct indexer_bwd_grains_params *params) {
    float *const warps = (float *)(arena + TOPS_OFFSET);
    float largest = 0.0f;
    for (int i = (int)threadIdx.x; i < params->top_count; i += THREADS) {
        largest = fmaxf(largest, params->tops[i]);
    }
    block_begin(warps, warp_maximum(largest));
    __syncthreads();
    const int exponent = (int)(__float_as_uint(block_maximum(warps)) >> MANTISSA_BITS);
    /* largest < 2^(exponent - EXPONENT_ONE + 1) */
    return minimum(2 * EXPONENT_ONE - 1 + params->bits - exponent, EXPONENT_MOST);
}
