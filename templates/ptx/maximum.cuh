//@use common/base.cuh

/* The larger of two; NaN if either is (PTX ISA, "max", .NaN). */
DEVICE float maximum_nan(float x, float y) {
    float z;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}
