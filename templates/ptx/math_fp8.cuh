//@use common/base.cuh

/* Converts two floats to the nearest e4m3, saturating at 448, `low` in the lower byte of the lower
 * half (PTX ISA, "cvt", .satfinite.e4m3x2). */
DEVICE u32 pack_e4m3x2(float low, float high) {
    u32 packed;
    asm("{.reg .b16 pair;\n\t"
        "cvt.rn.satfinite.e4m3x2.f32 pair, %1, %2;\n\t"
        "cvt.u32.u16 %0, pair;}"
        : "=r"(packed)
        : "f"(high), "f"(low));
    return packed;
}
