/* templates/ptx/prefetch.cuh, emulated: a hint, which does nothing and cannot fail. */
#ifndef EMU_PTX_PREFETCH
#define EMU_PTX_PREFETCH

#define prefetch_l2(from, bytes) ((void)(from), (void)(bytes))

#endif
