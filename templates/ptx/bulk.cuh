//@use ptx/shared.cuh
/*
 * Bulk copies of contiguous bytes by the async proxy, issued by one thread (PTX ISA, "Data Movement
 * and Conversion Instructions: Bulk copy"). Addresses and `bytes` are multiples of 16. A copy from
 * shared memory needs fence_proxy_async after plain stores to it. Copies to shared memory complete
 * on an mbarrier, those to global memory in bulk groups.
 */

/* Global to shared memory; the barrier expects `bytes` (PTX ISA, "cp.async.bulk"). */
DEVICE void bulk_load(u32 to, const void *from, u32 bytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];"
                 :
                 : "r"(to), "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* Shared to global memory. */
DEVICE void bulk_store(void *to, u32 from, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 :
                 : "l"(to), "r"(from), "r"(bytes)
                 : "memory");
}

/* Commits this thread's stores as a group (PTX ISA, "cp.async.bulk.commit_group").
 */
DEVICE void bulk_commit(void) {
    asm volatile("cp.async.bulk.commit_group;" : : : "memory");
}

/* Waits until at most `pending` of this thread's groups are in flight (PTX ISA,
 * "cp.async.bulk.wait_group"); _read: until all others have read their sources, which may then be
 * overwritten. Macros, because `pending` is an immediate operand: a constant. */
#define bulk_wait(pending)                                                                         \
    asm volatile("cp.async.bulk.wait_group %0;" : : "n"((int)(pending)) : "memory")
#define bulk_wait_read(pending)                                                                    \
    asm volatile("cp.async.bulk.wait_group.read %0;" : : "n"((int)(pending)) : "memory")
