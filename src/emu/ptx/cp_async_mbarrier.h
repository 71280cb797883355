/* templates/ptx/cp_async_mbarrier.cuh, emulated. */
#ifndef EMU_PTX_CP_ASYNC_MBARRIER
#define EMU_PTX_CP_ASYNC_MBARRIER

/* increments: the arrival is not one of the expected (no .noinc). */
void emu_cp_async_arrive(unsigned barrier, int increments);
void emu_cp_async_wait_all(void);

#define cp_async_arrive_noinc(barrier) emu_cp_async_arrive(barrier, 0)
#define cp_async_arrive(barrier) emu_cp_async_arrive(barrier, 1)
#define cp_async_wait_all() emu_cp_async_wait_all()

#endif
