//@use common/base.cuh

/* Loads 16 bytes of global memory that no thread writes while the kernel runs and that are not read
 * again soon, without allocating them in L1 (PTX ISA, "ld.global.nc", .L1::no_allocate). 16-byte
 * aligned. */
DEVICE void load_streaming_16(u32 *values, const void *from) {
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
        : "l"(from));
}
