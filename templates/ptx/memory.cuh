//@use ptx/shared.cuh

/* Stores 16 bytes to global memory that are not read again soon, evict-first (PTX ISA, "st", .cs).
 * 16-byte aligned. */
DEVICE void store_streaming_16(void *to, const u32 *values) {
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(to), "r"(values[0]), "r"(values[1]), "r"(values[2]), "r"(values[3])
                 : "memory");
}

/* The same for 8 bytes, 8-byte aligned. */
DEVICE void store_streaming_8(void *to, const u32 *values) {
    asm volatile("st.global.cs.v2.u32 [%0], {%1, %2};"
                 :
                 : "l"(to), "r"(values[0]), "r"(values[1])
                 : "memory");
}

/* Loads 16 bytes of global memory that no thread writes while the kernel runs (PTX ISA,
 * "ld.global.nc"). */
DEVICE void load_read_only_16(u32 *values, const void *from) {
    asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
        : "l"(from));
}

/* Loads 4 bytes of global memory, bypassing L1, which may be stale (PTX ISA, "ld", .cg). */
DEVICE u32 load_l2_32(const void *from) {
    u32 value;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

/* Loads 16 bytes of shared memory, 16-byte aligned (PTX ISA, "ld", .shared). */
DEVICE void load_shared_16(u32 *values, u32 address) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
                 : "r"(address)
                 : "memory");
}
