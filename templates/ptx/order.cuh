//@use common/base.cuh

/* Shifts a mask one bit to the left and puts in whether x > threshold: the sign of their
 * difference, one addition and one shift. A NaN is not greater: the difference is then the
 * canonical NaN, whose sign is clear (PTX ISA, "sub", "Floating Point Comparisons"; 0x7fffffff). */
DEVICE u32 push_greater(u32 mask, float threshold, u32 x) {
    asm("{.reg .f32 difference;\n\t"
        ".reg .b32 bits;\n\t"
        "mov.b32 difference, %2;\n\t"
        "sub.rn.f32 difference, %1, difference;\n\t"
        "mov.b32 bits, difference;\n\t"
        "shf.l.wrap.b32 %0, bits, %0, 1;}"
        : "+r"(mask)
        : "f"(threshold), "r"(x));
    return mask;
}
