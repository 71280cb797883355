//@use ptx/shared.cuh
/*
 * mbarriers in shared memory (PTX ISA, "Parallel Synchronization and Communication Instructions:
 * mbarrier"): 8 bytes, 8-byte aligned. A phase completes after `count` arrivals and all expected
 * bytes. Phases alternate between parity 0, the first, and 1. A wait for the parity of the phase
 * before the current one returns at once, so on a fresh barrier a wait for parity 1 does.
 */

/* Initialises a barrier with `count` arrivals per phase. Other threads see it after a barrier of
 * the block; the async proxy and the cluster after mbarrier_fence_init (PTX ISA, "mbarrier.init").
 */
DEVICE void mbarrier_init(u32 barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(barrier), "r"(count) : "memory");
}

/* Makes this thread's mbarrier_init visible to the async proxy and the cluster (PTX ISA,
 * "fence.mbarrier_init"). */
DEVICE void mbarrier_fence_init(void) {
    asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
}

/* One arrival, which releases this thread's writes (PTX ISA, "mbarrier.arrive"). */
DEVICE void mbarrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];"
                 :
                 : "r"(barrier)
                 : "memory");
}

/* `count` arrivals at once. */
DEVICE void mbarrier_arrive_count(u32 barrier, int count) {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(barrier), "r"(count)
                 : "memory");
}

/* Adds `bytes` to the current phase's expected bytes, then arrives once (PTX ISA,
 * "mbarrier.arrive", .expect_tx). */
DEVICE void mbarrier_arrive_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(barrier), "r"(bytes)
                 : "memory");
}

/* The same without the arrival (PTX ISA, "mbarrier.expect_tx"). */
DEVICE void mbarrier_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
                 :
                 : "r"(barrier), "r"(bytes)
                 : "memory");
}

/* One arrival at a barrier of any block of the cluster, given by its cluster_address, by a thread
 * that has only read the buffer it frees: there is no release to the cluster, which would wait until
 * this thread's writes are visible elsewhere. The arrival is ordered after this thread's earlier
 * accesses only within its own block and can overtake loads, so its address must depend on the
 * loaded values. The waiting thread uses mbarrier_wait_given_back and may only write the buffer (PTX
 * ISA, "mbarrier.arrive", .shared::cluster). */
DEVICE void mbarrier_give_back_remote(u32 cluster_barrier) {
    asm volatile("mbarrier.arrive.release.cta.shared::cluster.b64 _, [%0];"
                 :
                 : "r"(cluster_barrier)
                 : "memory");
}

/* Whether the phase with that parity is complete; if so, acquires what its arrivals released (PTX
 * ISA, "mbarrier.test_wait"). */
DEVICE bool mbarrier_test(u32 barrier, int parity) {
    u32 over;
    asm volatile("{.reg .pred p;\n\t"
                 "mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n\t"
                 "selp.u32 %0, 1, 0, p;}"
                 : "=r"(over)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return over != 0;
}

/* Waits until the phase with that parity is complete (PTX ISA, "mbarrier.try_wait", which suspends
 * the thread for a hardware-defined time). */
DEVICE void mbarrier_wait(u32 barrier, int parity) {
    u32 over;
    do {
        asm volatile("{.reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;}"
                     : "=r"(over)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!over);
}

/* The same for mbarrier_give_back_remote; acquires nothing. */
DEVICE void mbarrier_wait_given_back(u32 barrier, int parity) {
    u32 over;
    do {
        asm volatile("{.reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;}"
                     : "=r"(over)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!over);
}
