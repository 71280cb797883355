/* templates/ptx/prefetch.cuh, emulated. */
#ifndef EMU_PTX_PREFETCH
#define EMU_PTX_PREFETCH

void emu_prefetch(const void *from, unsigned bytes);

#define prefetch_l2(from, bytes) emu_prefetch(from, bytes)

#endif
