//@use common/base.cuh

/* 16 bytes of global memory that nobody reads again soon: they take no place in L1 (PTX ISA, "ld",
 * .L1::no_allocate). Unlike load_streaming_16 also of what a kernel before this one wrote after
 * this one had begun, behind grid_wait (ptx/grid.cuh). The address is a multiple of 16. */
DEVICE void load_once_16(u32 *values, const void *from) {
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
                 : "l"(from));
}
