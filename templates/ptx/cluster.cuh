//@use ptx/shared.cuh
/*
 * Distributed shared memory: thread blocks of a cluster access each other's shared memory (PTX ISA,
 * "State Spaces", .shared::cluster). A block must not end while others may still access its own.
 */

/* Arrives at the cluster's barrier and releases this thread's writes. Every thread of the cluster
 * arrives and later waits (PTX ISA, "barrier.cluster"). */
DEVICE void cluster_arrive(void) {
    asm volatile("barrier.cluster.arrive.release.aligned;" : : : "memory");
}

DEVICE void cluster_wait(void) {
    asm volatile("barrier.cluster.wait.acquire.aligned;" : : : "memory");
}

/* This block's rank in its cluster (PTX ISA, "Special Registers", %cluster_ctarank). */
DEVICE u32 cluster_rank(void) {
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* Maps a shared-memory address of this block to the same location in block `rank` of the cluster
 * (PTX ISA, "mapa"). */
DEVICE u32 cluster_address(u32 address, u32 rank) {
    u32 mapped;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
    return mapped;
}

/* Stores 16 bytes, 16-byte aligned, that count their bytes down on a barrier of the same block as
 * `to`; both are cluster addresses. Visible to the block that waits (PTX ISA, "st.async"). */
DEVICE void cluster_store_async_16(u32 to, const u32 *values, u32 barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.u32 "
                 "[%0], {%1, %2, %3, %4}, [%5];"
                 :
                 : "r"(to), "r"(values[0]), "r"(values[1]), "r"(values[2]), "r"(values[3]),
                   "r"(barrier)
                 : "memory");
}
