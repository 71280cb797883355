/* templates/ptx/bulk.cuh, emulated. */

void emu_bulk_load(unsigned to, const void *from, unsigned bytes, unsigned barrier);
void emu_bulk_store(void *to, unsigned from, unsigned bytes);
void emu_bulk_commit(void);
/* reads: waits only until the sources have been read. */
void emu_bulk_wait(int pending, int reads);

#define bulk_load(to, from, bytes, barrier) emu_bulk_load(to, from, bytes, barrier)
#define bulk_store(to, from, bytes) emu_bulk_store(to, from, bytes)
#define bulk_commit() emu_bulk_commit()
#define bulk_wait_0() emu_bulk_wait(0, 0)
#define bulk_wait_1() emu_bulk_wait(1, 0)
#define bulk_wait_2() emu_bulk_wait(2, 0)
#define bulk_wait_3() emu_bulk_wait(3, 0)
#define bulk_wait_read_0() emu_bulk_wait(0, 1)
#define bulk_wait_read_1() emu_bulk_wait(1, 1)
#define bulk_wait_read_2() emu_bulk_wait(2, 1)
#define bulk_wait_read_3() emu_bulk_wait(3, 1)
