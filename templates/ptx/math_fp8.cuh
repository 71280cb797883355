//@use common/base.cuh

/* Two floats rounded to the nearest e4m3, beyond its range to the largest (448), `low` in the lower
 * byte of the lower half (PTX ISA, "cvt", .satfinite.e4m3x2). */
DEVICE u32 pack_e4m3x2(float low, float high) {
    u32 packed;
    asm("{.reg .b16 pair;\n\t"
        "cvt.rn.satfinite.e4m3x2.f32 pair, %1, %2;\n\t"
        "cvt.u32.u16 %0, pair;}"
        : "=r"(packed)
        : "f"(high), "f"(low));
    return packed;
}

/* The two e4m3 values in the lower half, exactly (PTX ISA, "cvt", .f16x2.e4m3x2). */
DEVICE void unpack_e4m3x2(float *low, float *high, u32 packed) {
    asm("{.reg .b16 pair, first, second;\n\t"
        ".reg .b32 halves;\n\t"
        "cvt.u16.u32 pair, %2;\n\t"
        "cvt.rn.f16x2.e4m3x2 halves, pair;\n\t"
        "mov.b32 {first, second}, halves;\n\t"
        "cvt.f32.f16 %0, first;\n\t"
        "cvt.f32.f16 %1, second;}"
        : "=f"(*low), "=f"(*high)
        : "r"(packed));
}
