/* templates/ptx/bulk.cuh, emulated. */

void emu_bulk_load(unsigned to, const void *from, unsigned bytes, unsigned barrier);
void emu_bulk_store(void *to, unsigned from, unsigned bytes);
void emu_bulk_commit(void);
/* reads: waits only until the sources have been read. */
void emu_bulk_wait(int pending, int reads);

#define bulk_load(to, from, bytes, barrier) emu_bulk_load(to, from, bytes, barrier)
#define bulk_store(to, from, bytes) emu_bulk_store(to, from, bytes)
#define bulk_commit() emu_bulk_commit()
#define bulk_wait(pending) emu_bulk_wait(pending, 0)
#define bulk_wait_read(pending) emu_bulk_wait(pending, 1)
