//@use common/base.cuh

/* A counter in global memory that blocks tell each other their progress with: adding releases what
 * this thread wrote, reading acquires it (PTX ISA, "red", "ld", "Memory Consistency Model"). */
DEVICE void counter_add(u32 *counter, u32 value) {
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;"
                 :
                 : "l"(counter), "r"(value)
                 : "memory");
}

DEVICE u32 counter_read(const u32 *counter) {
    u32 value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
    return value;
}
