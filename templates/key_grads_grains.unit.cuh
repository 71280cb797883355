//@use common/base.cuh
//@use common/block_sums.cuh
//@use key_grads_grains.params.h
/*
 * The units of bounds: powers of two, as fp32 exponent fields. The largest addend has params.bits
 * coarse units; fine units are smaller. An exponent that would be negative is clamped: such addends
 * are too small to matter.
 *
 * TOPS_OFFSET: [WARPS] float.
 */

enum { EXPONENT_ONE = 127, EXPONENT_MOST = 254, MANTISSA_BITS = 23 };

/* A coarse unit is 2^FINER fine ones. More than 2^bits fine units are at least 2^(bits - FINER)
 * coarse ones, that is 64 with the largest number of groups. */
enum { COARSE, FINE, UNITS };
enum { FINER = 12 };

/* The exponent field of 1 / unit of a kind, from that of the coarse one. */
DEVICE int scale_exponent(int scale, int kind) {
    return kind == COARSE ? scale : minimum(scale + FINER, EXPONENT_MOST);
}

DEVICE float scale_of(int scale, int kind) {
    return __uint_as_float((u32)scale_exponent(scale, kind) << MANTISSA_BITS);
}

/* The exponent field of 1 / coarse unit, the same in all threads; contains a barrier. */
DEVICE int find_scale(const struct key_grads_grains_params *params) {
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
