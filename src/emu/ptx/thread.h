/* templates/ptx/thread.cuh, emulated. */
#ifndef EMU_PTX_THREAD
#define EMU_PTX_THREAD

#define thread_number() (threadIdx.x)

#endif
