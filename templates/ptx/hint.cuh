//@use common/base.cuh

/*
 * A number in global memory by which thread blocks hint to each other how far they have come.
 * Nothing may depend on it but time: neither orders other accesses, and the wait ends by itself
 * (PTX ISA, "red", "ld", .relaxed).
 */
DEVICE void hint_add(u32 *hint, u32 value) {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" : : "l"(hint), "r"(value) : "memory");
}

/* Reads it until it has come to `value`, `polls` times at most; how many were left over. One
 * sequence of instructions, which costs its caller few registers. */
DEVICE int hint_wait(const u32 *hint, u32 value, int polls) {
    asm volatile("{.reg .pred go_on;\n\t"
                 ".reg .u32 have;\n"
                 "again:\n\t"
                 "add.s32 %0, %0, -1;\n\t"
                 "setp.lt.s32 go_on, %0, 0;\n\t"
                 "@go_on bra over;\n\t"
                 "ld.relaxed.gpu.global.u32 have, [%1];\n\t"
                 "setp.lo.u32 go_on, have, %2;\n\t"
                 "@go_on bra again;\n"
                 "over:}"
                 : "+r"(polls)
                 : "l"(hint), "r"(value)
                 : "memory");
    return polls;
}
