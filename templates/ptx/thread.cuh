//@use common/base.cuh

/* This thread's number in its block, read again at each call, so that values derived from it occupy
 * no registers in between (PTX ISA, "Special Registers: %tid"). */
DEVICE u32 thread_number(void) {
    u32 number;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(number));
    return number;
}
