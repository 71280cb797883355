/* templates/ptx/cp_async.cuh, emulated. */

/* `given` of the `bytes` are read, the others are zero-filled. */
void emu_cp_async(unsigned address, const void *source, int bytes, int given);
void emu_cp_async_commit(void);
void emu_cp_async_wait(int pending);

#define cp_async_16(address, source, bytes) emu_cp_async(address, source, 16, bytes)
#define cp_async_commit() emu_cp_async_commit()
#define cp_async_wait(pending) emu_cp_async_wait(pending)
