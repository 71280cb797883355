//@use common/base.cuh
//@use ptx/atomic.cuh
/*
 * Bounds of the sum of the magnitudes of a row's addends, for its grain (common/grain.cuh). Integer
 * additions make them independent of the order. A bound has a bin for every BIN_EXPONENTS exponents of
 * fp32, so that no unit has to be known in advance and the bounds of small addends are as precise as
 * those of large ones. An addend is rounded up to two bits after its leading one; a bin holds 2^30 of them.
 */

enum { VALUE, KEY, KINDS }; /* a row's bounds: of dv, of dk */
enum { BINS = 8, BIN_EXPONENTS = 32, SHARE_BITS = 2, MANTISSA_BITS = 23 };

/* Adds a finite value to a bound. */
DEVICE void add_bound(u64 *bound, float addend) {
    const u32 bits = __float_as_uint(addend), exponent = bits >> MANTISSA_BITS;
    const u32 mantissa = (bits & ((1u << MANTISSA_BITS) - 1)) | 1u << MANTISSA_BITS;
    const u32 share = (mantissa >> (MANTISSA_BITS - SHARE_BITS)) + 1;
    if (bits != 0) {
        reduce_add_global_64(bound + exponent / BIN_EXPONENTS,
                             (u64)share << exponent % BIN_EXPONENTS);
    }
}

/* The exponent field of the grain for a bound; 0 if nothing was added. The grain is 2^23 u for the smallest
 * power of two u with 1.25 * bound < 2^24 u. The factor 1.25 leaves room for what rounding to u adds: at most
 * u / 2 for each of fewer than 2^21 addends. */
DEVICE u32 grain_exponent(const u64 *bound) {
    enum { LEAST_EXPONENT = 24, MOST_EXPONENT = 254 }; /* u is normal; the grain is finite */
    int top = BINS - 1;
    while (top > 0 && bound[top] == 0) {
        --top;
    }
    /* The bins below the next one amount to less than two units of this one. */
    const u64 sum = bound[top] + (top > 0 ? (bound[top - 1] >> BIN_EXPONENTS) + 3 : 0);
    const int digits = 66 - __clzll((i64)(sum / 4 + sum / 16 + 2)); /* of 1.25 * sum */
    const int exponent = top * BIN_EXPONENTS + digits - SHARE_BITS - 1;
    return sum > 0 ? (u32)minimum(maximum(exponent, LEAST_EXPONENT), MOST_EXPONENT) : 0;
}

/* The power of two with this exponent field; 0 for field 0. */
DEVICE float power_of_two(u32 exponent) {
    return __uint_as_float(exponent << MANTISSA_BITS);
}
