//@use common/base.cuh
/*
 * The block's 16 named barriers (PTX ISA, "bar, barrier"); 0 is that of __syncthreads. `threads`, a
 * multiple of 32, counts the arriving threads, waiting or not. Whole warps arrive together. A
 * constant `id` reserves one barrier, a variable one all 16.
 */

/* Arrives and waits for the others. */
DEVICE void barrier_sync(int id, int threads) {
    asm volatile("barrier.cta.sync.aligned %0, %1;" : : "r"(id), "r"(threads) : "memory");
}

/* Arrives without waiting; others wait with barrier_sync. */
DEVICE void barrier_arrive(int id, int threads) {
    asm volatile("barrier.cta.arrive.aligned %0, %1;" : : "r"(id), "r"(threads) : "memory");
}

/* Arrives, waits, and returns whether any thread's condition holds. */
DEVICE bool barrier_or(int id, int threads, bool condition) {
    u32 any;
    asm volatile("{.reg .pred p, q;\n\t"
                 "setp.ne.u32 p, %1, 0;\n\t"
                 "barrier.cta.red.or.aligned.pred q, %2, %3, p;\n\t"
                 "selp.u32 %0, 1, 0, q;}"
                 : "=r"(any)
                 : "r"((u32)condition), "r"(id), "r"(threads)
                 : "memory");
    return any != 0;
}
