//@use ptx/shared.cuh

/* Copies 16 bytes from global to shared memory, bypassing registers and L1. The last 16 - `bytes`
 * are zero-filled; with bytes = 0 the source is not read (PTX ISA, "cp.async"). */
DEVICE void cp_async_16(u32 address, const void *source, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(address), "l"(source), "r"(bytes)
                 : "memory");
}

/* Commits this thread's copies as a group (PTX ISA, "cp.async.commit_group"). */
DEVICE void cp_async_commit(void) {
    asm volatile("cp.async.commit_group;" : : : "memory");
}

/* Waits until at most `pending` of this thread's groups are in flight (PTX ISA,
 * "cp.async.wait_group"). A macro, because `pending` is an immediate operand: a constant. */
#define cp_async_wait(pending)                                                                     \
    asm volatile("cp.async.wait_group %0;" : : "n"((int)(pending)) : "memory")
