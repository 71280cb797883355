/* templates/ptx/cp_async.cuh, emulated. */

/* `given` of the `bytes` are read, the others are zero-filled. */
void emu_cp_async(unsigned address, const void *source, int bytes, int given);
void emu_cp_async_commit(void);
void emu_cp_async_wait(int pending);

#define cp_async_16(address, source, bytes) emu_cp_async(address, source, 16, bytes)
#define cp_async_commit() emu_cp_async_commit()
#define cp_async_wait_0() emu_cp_async_wait(0)
#define cp_async_wait_1() emu_cp_async_wait(1)
#define cp_async_wait_2() emu_cp_async_wait(2)
#define cp_async_wait_3() emu_cp_async_wait(3)
#define cp_async_wait_4() emu_cp_async_wait(4)
#define cp_async_wait_5() emu_cp_async_wait(5)
#define cp_async_wait_6() emu_cp_async_wait(6)
#define cp_async_wait_7() emu_cp_async_wait(7)
