//@use common/base.cuh
/*
 * Sums that are the same bits in whatever order they are added up: each value is rounded to a
 * multiple of a power of two u, the row's own, so large that the sum of all values' sizes stays
 * below 2^24 u. Then fp32 holds every partial sum exactly. (J. Demmel and H. D. Nguyen, Fast
 * Reproducible Floating-Point Summation, 2013, round like that, against the largest value.) A row's
 * `grain` is 2^23 u, or 0 where nothing but 0 is added. u is a normal number: reductions in global
 * memory flush what is below to 0.
 */

/* The nearest multiple of u, of values up to 2^24 u: where a value has no digits below u it stays.
 * What is not finite stays so. */
DEVICE float round_to_grain(float value, float grain) {
    const u32 sign = __float_as_uint(value) & 0x80000000u;
    const float towards = __uint_as_float(__float_as_uint(grain) | sign);
    return (value + towards) - towards;
}
