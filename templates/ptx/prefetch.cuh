//@use common/base.cuh

/* Prefetches `bytes` of global memory into L2 without waiting; address and size are multiples of 16
 * (PTX ISA, "cp.async.bulk.prefetch"). */
DEVICE void prefetch_l2(const void *from, u32 bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" : : "l"(from), "r"(bytes) : "memory");
}
