//@use common/base.cuh

/*
 * A progress counter in global memory that thread blocks share as a hint. Only timing may depend on
 * it: it orders no other access, and the wait is bounded (PTX ISA, "red", "ld", .relaxed).
 */
DEVICE void hint_add(u32 *hint, u32 value) {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" : : "l"(hint), "r"(value) : "memory");
}

/* Polls until the counter has reached `value`, at most `polls` times; returns how many were left.
 * One sequence of instructions, which costs the caller few registers. */
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
