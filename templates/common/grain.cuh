//@use common/base.cuh
/*
 * Order-independent sums: each addend is rounded to a multiple of a power of two u, chosen per row
 * so that the sum of the addends' absolute values stays below 2^24 u. Every fp32 partial sum is
 * then exact. (J. Demmel and H. D. Nguyen, Fast Reproducible Floating-Point Summation, 2013, round
 * this way against the largest value.) A row's `grain` is 2^23 u, or 0 if all addends are 0. u is a
 * normal number, since reductions in global memory flush subnormals to 0.
 */

/* The nearest multiple of u or, above 2^23 u, of 2 u, for values up to 2^24 u; an infinity or NaN is
 * returned unchanged. With the largest grain, 2^127, finite values from 2^127 on become infinite. */
DEVICE float round_to_grain(float value, float grain) {
    const u32 sign = __float_as_uint(value) & 0x80000000u;
    const float towards = __uint_as_float(__float_as_uint(grain) | sign);
    return (value + towards) - towards;
}
