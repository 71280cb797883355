//@use common/base.cuh

/*
 * fp32 to e4m3 in integer arithmetic, for GPUs below compute capability 8.9, which lack
 * cvt.rn.satfinite.e4m3x2.f32: to nearest even, saturating at 448, NaN to 0x7f.
 *
 * The exponent's bias changes from 127 to 7 and the fraction loses 20 of its 23 bits. Below 2^-6,
 * codes are multiples of 2^-9; adding 2^14 rounds to these.
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

/* The value of a code, exact: exponent and fraction move to fp32's fields, 2^120 corrects the bias. */
DEVICE float e4m3_value(u32 code) {
    const float power = __int_as_float(0x7b800000); /* 2^120 */
    const float size = __int_as_float((int)((code & 0x7fu) << 20)) * power;
    return __int_as_float((code & 0x7fu) == 0x7fu
                              ? 0x7fc00000
                              : (int)((u32)__float_as_int(size) | (code & 0x80u) << 24));
}
