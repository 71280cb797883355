//@use ptx/shared.cuh

/* One of the barrier's expected arrivals, performed once all earlier cp.async copies of this thread
 * have completed (PTX ISA, "cp.async.mbarrier.arrive", .noinc). It covers only copies: plain stores
 * of this thread need an arrival of their own. */
DEVICE void cp_async_arrive_noinc(u32 barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];"
                 :
                 : "r"(barrier)
                 : "memory");
}

/* Waits for all of this thread's copies, committed or not (PTX ISA, "cp.async.wait_all"). */
DEVICE void cp_async_wait_all(void) {
    asm volatile("cp.async.wait_all;" : : : "memory");
}
