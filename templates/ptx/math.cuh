//@use common/base.cuh

/* 2^x; 0 for -inf, +inf for +inf (PTX ISA, "ex2.approx.ftz.f32": error at most 2 ulp). */
DEVICE float exp2_approximate(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* log2(x); -inf for 0 (PTX ISA, "lg2.approx.f32": absolute error 2^-22 near 1). */
DEVICE float log2_approximate(float x) {
    float y;
    asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* The smaller of two; NaN if either is (PTX ISA, "min", .NaN). */
DEVICE float minimum_nan(float x, float y) {
    float z;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}

/* Converts two floats to the nearest bf16, `low` in the lower half (PTX ISA, "cvt"). */
DEVICE u32 pack_bf16x2(float low, float high) {
    u32 packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}
