/* templates/ptx/thread.cuh, emulated. */

#define thread_number() (threadIdx.x)
