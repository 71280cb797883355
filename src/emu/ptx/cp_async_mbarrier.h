/* templates/ptx/cp_async_mbarrier.cuh, emulated. */

void emu_cp_async_arrive(unsigned barrier);
void emu_cp_async_wait_all(void);

#define cp_async_arrive_noinc(barrier) emu_cp_async_arrive(barrier)
#define cp_async_wait_all() emu_cp_async_wait_all()
