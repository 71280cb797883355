//@use common/base.cuh

/* Loads 16 bytes of global memory that are not read again soon, without allocating them in L1 (PTX
 * ISA, "ld", .L1::no_allocate). Unlike load_streaming_16 it may read what an earlier kernel wrote
 * after this one began, after grid_wait (ptx/grid.cuh). 16-byte aligned. */
DEVICE void load_once_16(u32 *values, const void *from) {
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
                 : "l"(from));
}

/* The same for 8 bytes, 8-byte aligned. */
DEVICE void load_once_8(u32 *values, const void *from) {
    asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(values[0]), "=r"(values[1])
                 : "l"(from));
}
