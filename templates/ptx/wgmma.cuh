//@use common/base.cuh
/*
 * Fences and groups of asynchronous matrix products of a warpgroup (four warps, all together); the
 * products themselves are in ptx/wgmma_ss.cuh and the like (PTX ISA, "Asynchronous Warpgroup Level
 * Matrix Multiply-Accumulate Instructions").
 */

/* Required before the first product and whenever other instructions have accessed registers that
 * products use, except accumulators of the same shape in successive products (PTX ISA,
 * "wgmma.fence"). It does not order shared memory; fence_proxy_async does. */
DEVICE void wgmma_fence(void) {
    asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
}

/* Commits the warpgroup's products as a group (PTX ISA, "wgmma.commit_group"). */
DEVICE void wgmma_commit(void) {
    asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}

/* Waits until at most `pending` groups are in flight. Until then accumulators and A's registers must not
 * be accessed, nor operands in shared memory written (PTX ISA, "wgmma.wait_group"). A macro, because
 * `pending` is an immediate operand: a constant. */
#define wgmma_wait(pending)                                                                        \
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"((int)(pending)) : "memory")
