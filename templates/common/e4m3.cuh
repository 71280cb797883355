//@use common/base.cuh

/*
 * A float as e4m3, to the nearest, ties to even, beyond 448 to 448, NaN to 0x7f: what
 * cvt.rn.satfinite.e4m3x2.f32 does from compute capability 8.9 on, by integers.
 *
 * e4m3's exponent is biased by 7, fp32's by 127, and 20 of the fraction's 23 bits go; below 2^-6
 * codes count in steps of 2^-9, which is what the addition of 2^14 rounds to.
 */
DEVICE u32 e4m3_of(float x) {
    enum { E4M3_NAN = 0x7f, E4M3_LARGEST = 0x7e, REBIAS = (127 - 7) << 3 };
    const u32 bits = (u32)__float_as_int(x), size = bits & 0x7fffffffu;
    u32 code;
    if (size < 0x3c800000u) { /* 2^-6 */
        const float sum = __int_as_float((int)size) + 16384.0f;
        code = (u32)__float_as_int(sum) & 0xfu;
    } else {
        code = ((size + 0x7ffffu + (size >> 20 & 1u)) >> 20) - REBIAS;
    }
    if (size >= 0x43e00000u) { /* 448 */
        code = size > 0x7f800000u ? E4M3_NAN : E4M3_LARGEST;
    }
    return size > 0x7f800000u ? code : code | (bits >> 24 & 0x80u);
}
