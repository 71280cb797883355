//@use common/base.cuh

/* Adds to consecutive fp32 values in global memory without returning a result; the address is
 * aligned to the access size (PTX ISA, "red"). Each value is a separate atomic addition; the order
 * among threads is unspecified. */
DEVICE void reduce_add_f32(float *to, float value) {
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" : : "l"(to), "f"(value) : "memory");
}

DEVICE void reduce_add_f32x4(float *to, const float *values) {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(to), "f"(values[0]), "f"(values[1]), "f"(values[2]), "f"(values[3])
                 : "memory");
}
