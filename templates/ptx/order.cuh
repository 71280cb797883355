//@use common/base.cuh

/* Shifts a mask left by one and inserts x > threshold: the sign of threshold - x, in one addition
 * and one shift. If either is NaN the inserted bit is 0: the difference is then the canonical NaN
 * 0x7fffffff, whose sign is clear (PTX ISA, "sub", "Floating Point Comparisons"). */
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
