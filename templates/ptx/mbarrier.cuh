//@use ptx/shared.cuh
/*
 * Barriers in shared memory (PTX ISA, "Parallel Synchronization and Communication Instructions:
 * mbarrier"). A barrier is 8 bytes, 8-byte aligned. A phase ends when as many arrivals as the count
 * have come and every expected byte has landed; phases alternate between parity 0, the first,
 * and 1. Waiting for the parity before the current one passes at once, so that a fresh barrier lets
 * a wait for parity 1 through.
 */

/* A new barrier of so many arrivals a phase; seen by others after a barrier of the block, and by
 * copies and the cluster after mbarrier_fence_init (PTX ISA, "mbarrier.init"). */
DEVICE void mbarrier_init(u32 barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(barrier), "r"(count) : "memory");
}

/* Makes this thread's mbarrier_init known to the async proxy and the cluster (PTX ISA,
 * "fence.mbarrier_init"). */
DEVICE void mbarrier_fence_init(void) {
    asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
}

/* One arrival, which releases what this thread wrote (PTX ISA, "mbarrier.arrive"). */
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

/* The current phase waits for so many more bytes of copies; then one arrival (PTX ISA,
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

/* One arrival at the barrier of any block of the cluster, by its cluster_address (PTX ISA,
 * "mbarrier.arrive", .shared::cluster). Who waits for it uses mbarrier_wait_cluster. */
DEVICE void mbarrier_arrive_remote(u32 cluster_barrier) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];"
                 :
                 : "r"(cluster_barrier)
                 : "memory");
}

/* The same by a thread that gives back what it has read and not written, so that it need not wait
 * until its writes are seen elsewhere: what it did comes before the arrival for its own block
 * alone, and an arrival that nothing holds back leaves while loads before it still wait: the
 * address is to depend on what they gave. Who waits for it uses mbarrier_wait_given_back, and may
 * write there, no more. */
DEVICE void mbarrier_give_back_remote(u32 cluster_barrier) {
    asm volatile("mbarrier.arrive.release.cta.shared::cluster.b64 _, [%0];"
                 :
                 : "r"(cluster_barrier)
                 : "memory");
}

/* Whether the phase of that parity is over; acquires what its arrivals released (PTX ISA,
 * "mbarrier.test_wait"). */
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

/* Waits until the phase of that parity is over (PTX ISA, "mbarrier.try_wait", which sleeps for a
 * while of the hardware's choosing). */
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

/* The same, where arrivals come from other blocks of the cluster. */
DEVICE void mbarrier_wait_cluster(u32 barrier, int parity) {
    u32 over;
    do {
        asm volatile("{.reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;}"
                     : "=r"(over)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!over);
}

/* The same for mbarrier_give_back_remote: acquires nothing. */
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
