//@use common/base.cuh
//@use common/block_sums.cuh
//@use indexer_bwd_grains.params.h
/*
 * The units that bounds are counted in, powers of two: coarse ones, of which the largest of all
 * addends has params.bits, and fine ones. As fp32's exponent fields; where one would end below 0,
 * addends are too small for it to matter.
 *
 * TOPS_OFFSET: [WARPS] float.
 */

enum { EXPONENT_ONE = 127, EXPONENT_MOST = 254, MANTISSA_BITS = 23 };

/* Kinds of units. A coarse one is 2^FINER fine ones: what comes to more than 2^bits of these is at
 * least 2^(bits - FINER) coarse ones, 64 of as many groups as there are by rule. */
enum { COARSE, FINE, UNITS };
enum { FINER = 12 };

/* The exponent field of 1 / unit of a kind, out of the coarse one's. */
DEVICE int scale_exponent(int scale, int kind) {
    return kind == COARSE ? scale : minimum(scale + FINER, EXPONENT_MOST);
}

DEVICE float scale_of(int scale, int kind) {
    return __uint_as_float((u32)scale_exponent(scale, kind) << MANTISSA_BITS);
}

/* The exponent field of 1 / coarse unit, the same in all threads; a barrier. */
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
