//@use common/base.cuh

/* Brings `bytes` of global memory into the L2 cache, without waiting; the address and the number
 * are multiples of 16 (PTX ISA, "cp.async.bulk.prefetch"). */
DEVICE void prefetch_l2(const void *from, u32 bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" : : "l"(from), "r"(bytes) : "memory");
}
