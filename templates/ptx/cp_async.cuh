//@use ptx/shared.cuh

/* Copies 16 bytes from global to shared memory without registers, past L1; the last 16 - `bytes`
 * are filled with zeros, and with bytes = 0 the source is not read (PTX ISA, "cp.async"). */
DEVICE void cp_async_16(u32 address, const void *source, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(address), "l"(source), "r"(bytes)
                 : "memory");
}

/* Closes this thread's group of copies (PTX ISA, "cp.async.commit_group"). */
DEVICE void cp_async_commit(void) {
    asm volatile("cp.async.commit_group;" : : : "memory");
}

/* Waits until at most so many of this thread's groups are under way (PTX ISA,
 * "cp.async.wait_group"). */
//@for i in 0..STAGES - 1
DEVICE void cp_async_wait_$i(void) {
    asm volatile("cp.async.wait_group $i;" : : : "memory");
}
//@end
