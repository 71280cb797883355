//@use common/base.cuh

/* Relaxed atomics: they return the value before the change and order no other access (PTX ISA,
 * "atom", "red", .relaxed). Shared memory is addressed by 32-bit addresses (ptx/shared.cuh). */
DEVICE u32 atomic_or_shared(u32 address, u32 bits) {
    u32 before;
    asm volatile("atom.relaxed.cta.shared.or.b32 %0, [%1], %2;"
                 : "=r"(before)
                 : "r"(address), "r"(bits)
                 : "memory");
    return before;
}

DEVICE u32 atomic_add_shared(u32 address, u32 value) {
    u32 before;
    asm volatile("atom.relaxed.cta.shared.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "r"(address), "r"(value)
                 : "memory");
    return before;
}

/* Without a result, so that no thread waits for it. */
DEVICE void reduce_add_global(u32 *to, u32 value) {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" : : "l"(to), "r"(value) : "memory");
}

DEVICE void reduce_add_global_64(u64 *to, u64 value) {
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" : : "l"(to), "l"(value) : "memory");
}
