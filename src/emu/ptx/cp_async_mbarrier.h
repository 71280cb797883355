/* templates/ptx/cp_async_mbarrier.cuh, emulated. */
#ifndef EMU_PTX_CP_ASYNC_MBARRIER
#define EMU_PTX_CP_ASYNC_MBARRIER

void emu_cp_async_arrive(unsigned barrier);
void emu_cp_async_wait_all(void);

#define cp_async_arrive_noinc(barrier) emu_cp_async_arrive(barrier)
#define cp_async_wait_all() emu_cp_async_wait_all()

#endif
