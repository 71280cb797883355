//@use common/base.cuh

/* 16 bytes of global memory that no thread writes while the kernel runs, nor reads again soon: they
 * take no place in L1 (PTX ISA, "ld.global.nc", .L1::no_allocate). The address is a multiple of 16.
 */
DEVICE void load_streaming_16(u32 *values, const void *from) {
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
        : "l"(from));
}
